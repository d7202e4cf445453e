"""The repository is laid so that a checkout, an sdist and a wheel give the same package."""

import os
import re
import subprocess
import tomllib
from fnmatch import fnmatch
from importlib.metadata import distributions
from pathlib import Path

import pregel
import pregel.channels
import pregel.checkpoint

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOP = {
    *("pregel", "channels", "checkpoint", "tests", "benchmarks", "examples", ".ci", ".gitignore"),
    *("pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", "LICENSE"),
}


def committed() -> dict[str, str] | None:
    """Map each committed path to its git mode; None outside a git checkout, or where git is not installed."""
    try:
        done = subprocess.run(["git", "ls-files", "-s", "-z"], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    if done.returncode or not done.stdout:
        return None
    entries = [entry.split("\t", 1) for entry in done.stdout.split("\0") if entry]
    return {path: stat.split(" ")[0] for stat, path in entries}


def names(requirements: list[str]) -> list[str]:
    """Strip the requirements to the names of their distributions."""
    return [re.split(r"[^\w.-]", requirement)[0] for requirement in requirements]


def test_the_two_folders_are_relative_links_below_the_package() -> None:
    modes = committed()
    for name in ("channels", "checkpoint"):
        assert os.readlink(ROOT / "pregel" / name) == f"../{name}"
        assert modes is None or modes[f"pregel/{name}"] == "120000"


def test_a_module_reached_through_the_link_is_the_packages_own() -> None:
    assert pregel.channels.__name__ == "pregel.channels"
    assert pregel.checkpoint.CheckpointError.__module__ == "pregel.checkpoint.errors"


def test_the_top_level_holds_what_a_newcomer_must_see_and_no_more() -> None:
    modes = committed()
    if modes is None:
        ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines() if line]
        found = {
            entry for entry in os.listdir(ROOT) if not any(fnmatch(entry, pattern) for pattern in [*ignored, ".git"])
        }
    else:
        found = {path.partition("/")[0] for path in modes}
    assert found <= TOP


def test_ci_can_be_started() -> None:
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    text = (ROOT / "pregel/version.py").read_text(encoding="utf-8")
    assert f'__version__ = "{pregel.__version__}"' in text
    for path in [ROOT / "pyproject.toml", *(ROOT / "pregel").glob("*.py")]:
        assert path.name == "version.py" or f'"{pregel.__version__}"' not in path.read_text(encoding="utf-8")


def test_an_installed_package_says_the_same_version() -> None:
    assert {found.version for found in distributions(name="pregel")} <= {pregel.__version__}


def test_the_changelog_speaks_of_this_version() -> None:
    assert f"\n## {pregel.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_core_depends_on_two_distributions() -> None:
    assert names(PROJECT["dependencies"]) == ["msgpack", "structlog"]


def test_the_extras_are_declared_with_what_they_bring() -> None:
    extras = {extra: names(requirements) for extra, requirements in PROJECT["optional-dependencies"].items()}
    assert {extra: extras[extra] for extra in extras if extra != "dev"} == {
        "cli": ["typer", "rich"],
        "postgres": ["psycopg", "psycopg-pool"],
        "process": ["loky", "cloudpickle"],
        "dask": ["distributed"],
        "otel": ["opentelemetry-api"],
        "crypto": ["cryptography"],
    }
    assert "pregel" in extras["dev"]


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "pregel/py.typed").exists()
