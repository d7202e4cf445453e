"""MODULE_OR_FILE:GRAPH becomes a graph that keeps its state where the command line says."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from pregel import InMemorySaver, InvalidRequestError, Pregel, PregelError, Saver, StateGraph

GRAPHS = (StateGraph, Pregel)


def load(target: str) -> StateGraph[Any] | Pregel[Any]:
    """Return what `target` names: a graph, or what a function of that name returns. Raises InvalidRequestError."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise InvalidRequestError(f"{target!r} names no graph", hint="write module:graph or path/to/file.py:graph")
    is_file = place.endswith(".py") or os.sep in place
    module = _from_file(Path(place)) if is_file else _from_name(place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidRequestError(f"{place} has no {name!r}", hint=_graphs_in(module))
        found = getattr(found, part)
    if callable(found) and not isinstance(found, GRAPHS):
        found = _made(target, found)
    if not isinstance(found, GRAPHS):
        kind = type(found).__name__
        raise InvalidRequestError(f"{target} is no graph but {kind}", hint=_graphs_in(module))
    return found


def keeps_itself(graph: StateGraph[Any] | Pregel[Any]) -> bool:
    """Whether a graph brings a saver of its own; one in memory would end with this process and does not count."""
    return isinstance(graph, Pregel) and not isinstance(graph.checkpointer, InMemorySaver | None)


def attached(graph: StateGraph[Any] | Pregel[Any], saver: Saver) -> Pregel[Any]:
    """Return the graph compiled, keeping its state with this saver. Raises GraphValidationError."""
    return graph.with_checkpointer(saver) if isinstance(graph, Pregel) else graph.compile(saver)


def _from_name(name: str) -> ModuleType:
    # The installed command starts with its own folder on the path. `python -m` has the current one, and so do we.
    _first_on_path(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise InvalidRequestError(
                f"there is no module {name!r}", hint=f"it is looked for in {Path.cwd()} and the installed packages"
            ) from error
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _from_file(path: Path) -> ModuleType:
    """Run a file as a module named like it. Its values are stored under that name, in each process alike."""
    if not path.is_file():
        raise InvalidRequestError(f"there is no file {str(path)!r}", hint=f"the current folder is {Path.cwd()}")
    path = path.resolve()
    name = path.stem
    if name in sys.stdlib_module_names or name in sys.modules:
        name = f"{name}_file"  # it would replace a module that others use
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidRequestError(f"{str(path)!r} is no Python file", hint="its name ends with .py")
    module = module_from_spec(spec)
    _first_on_path(path.parent)  # as Python does for a script
    sys.modules[name] = module  # dataclasses and annotations look their module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _broken(str(path), error) from error
    return module


def _first_on_path(folder: Path) -> None:
    if str(folder) not in sys.path[:1]:
        sys.path.insert(0, str(folder))


def _made(target: str, function: Any) -> Any:
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise _broken(f"{target}()", error) from error


def _broken(what: str, error: BaseException) -> PregelError:
    hint = "--traceback shows where"
    return InvalidRequestError(f"{what} cannot be used: {type(error).__name__}: {error}", hint=hint)


def _graphs_in(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, GRAPHS)]
    return f"graphs there: {', '.join(names)}" if names else "there is no graph in it"
