"""Imports point downwards only: pregel to channels and checkpoint, which know nothing of each other.

Each rule is a function from sources to faults, so that its test can plant a fault. The tables are the law: who needs
another row writes the reason beside it.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
Sources = dict[str, str]  # path below ROOT -> text

# folder -> the name it is imported as, and the folders it may import, each only through its __init__
LAYERS = {
    "channels": ("pregel.channels", set[str]()),
    "checkpoint": ("pregel.checkpoint", set[str]()),
    "pregel": ("pregel", {"channels", "checkpoint"}),
}

SAVERS = (
    *("checkpoint/saver.py", "checkpoint/memory.py", "checkpoint/sqlite*.py", "checkpoint/conformance/*.py"),
    "checkpoint/postgres_pool.py",  # a pool for threads and one for each event loop
)
# the drivers, the pools, their primitives, the queue of writes, and the time limits of a task
DRIVERS = ("pregel/drive.py", "pregel/pool.py", "pregel/threads.py", "pregel/journal.py", "pregel/perform.py")

# module -> the files that may import it. What is neither here nor in the standard library may be imported by none.
ONLY_IN: dict[str, tuple[str, ...]] = {
    "structlog": ("pregel/log.py",),  # one place logs
    "logging": ("pregel/log.py",),
    "msgpack": ("checkpoint/*.py",),  # one layer knows how values lie in bytes
    "sqlite3": ("checkpoint/sqlite*.py",),  # a driver only in its saver
    "psycopg": ("checkpoint/postgres*.py",),
    "psycopg_pool": ("checkpoint/postgres*.py",),
    "typer": ("pregel/cli/*.py",),  # an extra, and nothing imports this file but the installed command
    "rich": ("pregel/cli/*.py",),
    "threading": (*DRIVERS, *SAVERS),  # savers are called from many threads, and their async twins use one
    "asyncio": (*DRIVERS, *SAVERS),
    "concurrent": (*DRIVERS, *SAVERS, "pregel/attempt.py"),  # there: what waits for a child call to end
    "queue": (*DRIVERS, *SAVERS),
    "multiprocessing": (),  # what runs elsewhere is a pool of its own, not a habit
    "typing_extensions": ("pregel/types.py",),  # for checkers alone, which have it built in; never at run time
    "importlib": ("pregel/cli/target.py",),  # loads the graph that the user names; decoding imports nothing (rule 12.3)
    "pickle": (),  # a stored byte must not choose what is called (rule 12.3)
    "marshal": (),
    "shelve": (),
}

# (file, module) that may be imported inside a function: optional dependencies, with the reason
LATE: set[tuple[str, str]] = {
    ("pregel/cli/__init__.py", "pregel"),  # its commands need an extra; who lacks it is told so
    ("checkpoint/__init__.py", "pregel"),  # PostgresSaver needs an extra; who lacks it is told so
}

# file -> modules that would make its functions depend on more than their arguments
_IMPURE = {"time", "random", "secrets", "uuid", "os", "io", "pathlib", "socket", "subprocess"}
PURE = {f"pregel/{name}.py": _IMPURE for name in ("rules", "pauses", "answers", "namespace")}

# (file, module) that reaches past the __init__ of another folder: must stay empty
REACHES: set[tuple[str, str]] = set()

OPTIONAL = (
    *(
        "typer",
        "rich",
        "psycopg",
        "psycopg_pool",
        "loky",
        "cloudpickle",
        "distributed",
        "opentelemetry",
        "cryptography",
    ),
    *("numpy", "pydantic", "pytest", "hypothesis"),  # no extras: a user's values may be theirs, the tests use them
)


class Import(NamedTuple):
    """One module that a file imports."""

    path: str
    line: int
    module: str
    late: bool  # inside a function

    @property
    def root(self) -> str:
        """The top-level package of the module."""
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


def read_sources(*folders: str) -> Sources:
    """Read each file where it lies; the links in pregel/ lead to files that are read in their own folder."""
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    linked = (ROOT / "pregel/channels", ROOT / "pregel/checkpoint")
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in found
        if not any(path.is_relative_to(link) for link in linked)
    }


def module_of(path: str) -> str:
    """Name the module of a file as it is imported."""
    folder, *parts = path.removesuffix(".py").split("/")
    names = [LAYERS[folder][0] if folder in LAYERS else folder, *parts]
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imports(sources: Sources) -> list[Import]:
    """List all imports, relative ones resolved. One for types only counts: what needs a type depends on it."""
    known = {module_of(path) for path in sources}
    found: list[Import] = []
    for path, text in sources.items():
        package = module_of(path) if path.endswith("/__init__.py") else module_of(path).rpartition(".")[0]
        for node, late in walk(ast.parse(text, path)):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            else:
                above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                names = (f"{base}.{alias.name}" for alias in node.names)
                targets = sorted({name if name in known else base for name in names})
            found += [Import(path, node.lineno, target, late) for target in targets]
    return found


def walk(node: ast.AST, late: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield the import statements below a node, and whether they stand in a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, late
        yield from walk(child, late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def layer_of(module: str) -> str | None:
    """Name the folder in which a module lies, None if it is not ours."""
    fitting = [folder for folder, (name, _) in LAYERS.items() if module == name or module.startswith(name + ".")]
    return max(fitting, key=lambda folder: len(LAYERS[folder][0]), default=None)


def wrong_arrows(sources: Sources) -> list[str]:
    """A folder imports itself, and others only as LAYERS allows and through their __init__."""
    faults = []
    for each in imports(sources):
        source, target = each.path.partition("/")[0], layer_of(each.module)
        if target is None or target == source:
            continue
        name, _ = LAYERS[target]
        if target not in LAYERS[source][1]:
            faults.append(f"{each}: {source} knows nothing of {target}")
        elif each.module != name and (each.path, each.module) not in REACHES:
            faults.append(f"{each}: import it from {name}")
    return faults


def strangers(sources: Sources) -> list[str]:
    """A module of ONLY_IN, or from outside the standard library, is imported only where the table says."""
    return [
        f"{each}: not for this file"
        for each in imports(sources)
        if layer_of(each.module) is None and (each.path, each.root) not in LATE
        if each.root in ONLY_IN or each.root not in sys.stdlib_module_names
        if not any(fnmatch(each.path, pattern) for pattern in ONLY_IN.get(each.root, ()))
    ]


def impurities(sources: Sources) -> list[str]:
    """A pure file imports no clock, chance or outside world."""
    return [f"{each}: this file is pure" for each in imports(sources) if each.root in PURE.get(each.path, ())]


def late_imports(sources: Sources) -> list[str]:
    """No import stands in a function, but for the optional dependencies in LATE; nor does a call that hides one."""
    hidden = [
        f"{path}:{node.lineno} calls __import__"
        for path, text in sources.items()
        for node in ast.walk(ast.parse(text, path))
        if isinstance(node, ast.Name) and node.id == "__import__"
    ]
    late = [each for each in imports(sources) if each.late and (each.path, each.root) not in LATE]
    return [*(f"{each} in a function" for each in late), *hidden]


def cycles(sources: Sources) -> list[str]:
    """The modules form a ladder. One that imports from its own folder's __init__ is a cycle too."""
    graph: dict[str, set[str]] = {}
    for each in imports(sources):
        if layer_of(each.module):
            graph.setdefault(module_of(each.path), set()).add(each.module)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [" is imported by ".join(error.args[1])]
    return []


def bare_names(sources: Sources) -> list[str]:
    """`channels` and `checkpoint` alone belong to other distributions and to the user."""
    return [f"{each}: it is pregel.{each.root}" for each in imports(sources) if each.root in ("channels", "checkpoint")]


RULES = (wrong_arrows, strangers, impurities, late_imports, cycles, bare_names)


@pytest.mark.parametrize("rule", RULES)
def test_the_package_keeps_the_rule(rule: Callable[[Sources], list[str]]) -> None:
    sources = read_sources("pregel", "channels", "checkpoint")
    assert {path.partition("/")[0] for path in sources} == set(LAYERS)
    assert rule(sources) == []


def test_nothing_around_the_package_imports_a_bare_name() -> None:
    assert bare_names(read_sources("tests", "benchmarks", "examples")) == []


FAULTLESS = {
    "channels/__init__.py": "from .base import Channel",
    "channels/base.py": "import contextvars\nfrom abc import ABC",
    "checkpoint/__init__.py": "from .checkpoint import Key\nfrom .sqlite import SqliteSaver",
    "checkpoint/checkpoint.py": "from typing import NamedTuple",
    "checkpoint/sqlite.py": "import sqlite3\nimport threading\nimport msgpack\nfrom .checkpoint import Key",
    "pregel/__init__.py": "from .drive import drive",
    "pregel/log.py": "import structlog",
    "pregel/rules.py": "from dataclasses import dataclass\nfrom .channels import Channel\nfrom .checkpoint import Key",
    "pregel/drive.py": "import asyncio\nimport pregel.checkpoint\nfrom . import rules\nimport pregel.channels",
}


@pytest.mark.parametrize("rule", RULES)
def test_faultless_sources_pass(rule: Callable[[Sources], list[str]]) -> None:
    assert rule(FAULTLESS) == []


@pytest.mark.parametrize(
    ("rule", "path", "text", "fault"),
    [
        (wrong_arrows, "channels/base.py", "from ..checkpoint import Key", "channels knows nothing of checkpoint"),
        (wrong_arrows, "channels/base.py", "import pregel.rules", "channels knows nothing of pregel"),
        (
            wrong_arrows,
            "checkpoint/sqlite.py",
            "from ..channels import Channel",
            "checkpoint knows nothing of channels",
        ),
        (wrong_arrows, "checkpoint/sqlite.py", "from .. import rules", "checkpoint knows nothing of pregel"),
        (wrong_arrows, "checkpoint/sqlite.py", "from pregel import drive", "checkpoint knows nothing of pregel"),
        (
            wrong_arrows,
            "pregel/drive.py",
            "from .checkpoint.sqlite import SqliteSaver",
            "import it from pregel.checkpoint",
        ),
        (wrong_arrows, "pregel/drive.py", "from .checkpoint import sqlite", "import it from pregel.checkpoint"),
        (wrong_arrows, "pregel/drive.py", "import pregel.channels.base", "import it from pregel.channels"),
        (strangers, "pregel/drive.py", "import structlog", "drive.py:1 imports structlog: not for this file"),
        (
            strangers,
            "pregel/rules.py",
            "from concurrent.futures import Future",
            "concurrent.futures: not for this file",
        ),
        (strangers, "checkpoint/checkpoint.py", "from psycopg import connect", "imports psycopg: not for this file"),
        (strangers, "checkpoint/checkpoint.py", "import sqlite3", "imports sqlite3: not for this file"),
        (strangers, "checkpoint/sqlite.py", "import numpy as np", "imports numpy: not for this file"),
        (strangers, "checkpoint/sqlite.py", "import pickle", "imports pickle: not for this file"),
        (strangers, "channels/base.py", "try:\n    import pydantic\nexcept ImportError: ...", "imports pydantic"),
        (strangers, "channels/base.py", "import msgpack", "imports msgpack: not for this file"),
        (impurities, "pregel/rules.py", "from time import monotonic", "rules.py:1 imports time: this file is pure"),
        (late_imports, "pregel/drive.py", "def f():\n    import json", "drive.py:2 imports json in a function"),
        (
            late_imports,
            "pregel/drive.py",
            "class A:\n    async def f(self): from .log import x",
            "pregel.log in a function",
        ),
        (late_imports, "pregel/drive.py", "x = __import__('json')", "drive.py:1 calls __import__"),
        (cycles, "pregel/rules.py", "from .drive import drive", "pregel.drive is imported by pregel.rules"),
        (cycles, "pregel/rules.py", "from . import drive", "pregel.drive is imported by pregel.rules"),
        (cycles, "pregel/rules.py", "from pregel import Pregel", "pregel is imported by pregel.rules"),
        (cycles, "pregel/rules.py", "if TYPE_CHECKING:\n    from .drive import drive", "imported by pregel.rules"),
        (cycles, "channels/base.py", "from pregel.channels import Topic", "pregel.channels is imported by"),
        (bare_names, "pregel/drive.py", "from checkpoint import Key", "imports checkpoint: it is pregel.checkpoint"),
        (bare_names, "examples/review.py", "import channels.base", "imports channels.base: it is pregel.channels"),
    ],
)
def test_a_planted_fault_is_found(rule: Callable[[Sources], list[str]], path: str, text: str, fault: str) -> None:
    faults = rule(FAULTLESS | {path: text})
    assert len(faults) == 1
    assert fault in faults[0]


def modules_after(statements: str) -> set[str]:
    """Run statements in a new process and return the top-level modules that are loaded after them."""
    code = f"import json, sys\n{statements}\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)} - sys.stdlib_module_names
    return {
        name for name in loaded if not name.startswith("_sysconfigdata")
    }  # of the standard library, named per build


def test_importing_the_package_loads_nothing_but_its_two_dependencies() -> None:
    # structlog loads rich by itself where rich is installed, so what the two bring is counted first.
    theirs = modules_after("import msgpack, structlog")
    assert modules_after("import msgpack, structlog, pregel") - theirs == {"pregel"}


def test_the_count_of_loaded_modules_sees_an_optional_dependency() -> None:
    theirs = modules_after("import msgpack, structlog")
    assert "hypothesis" in modules_after("import msgpack, structlog, pregel, hypothesis") - theirs


def test_the_package_is_imported_where_no_optional_dependency_is_installed() -> None:
    modules_after(f"sys.modules.update(dict.fromkeys({OPTIONAL!r}))\nimport pregel")
