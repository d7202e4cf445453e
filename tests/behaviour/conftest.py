"""Every behaviour test runs in the forgetful mode as well."""

import pytest


@pytest.fixture(autouse=True)
def _both_modes(amnesia: bool) -> None:
    """Bring in the modes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the forgetful mode to tests that have a saver: without one nothing can be read back."""
    items[:] = [item for item in items if not _is_idle(item)]


def _is_idle(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    if callspec is None or "tests/behaviour" not in item.path.as_posix():
        return False
    return callspec.params.get("amnesia") == "forgetful" and "saver" not in callspec.params
