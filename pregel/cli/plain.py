"""Values as JSON has them, and JSON as values. What JSON cannot say is written so that a person can read it."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, time
from enum import Enum
from pathlib import Path
from typing import Any

from pregel import Interrupt, InvalidRequestError, Send, StateSnapshot


def parsed(option: str, text: str) -> Any:
    """Return the value of an option: JSON, `@file` that holds it, or `-` for stdin. Raises InvalidRequestError."""
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{option}: {text[1:] or 'stdin'} cannot be read: {error}") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        raise InvalidRequestError(
            f"{option}: {shown!r} is not JSON: {error}", hint="text stands in double quotes: '\"yes\"'"
        ) from error


def as_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON text, in ASCII so that every terminal and pipe can carry it."""
    return json.dumps(plain(value), indent=indent)


_SHAPES: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    (Enum, lambda value: value.value),
    (bool, bool),
    (str, str),
    (int, int),
    (float, lambda value: float(value) if math.isfinite(value) else str(value)),
    (Mapping, lambda value: {_key(name): item for name, item in value.items()}),
    (Interrupt, Interrupt.as_dict),
    (Send, lambda value: {"node": value.node, "arg": value.arg}),
    (BaseException, lambda value: {"type": type(value).__name__, "message": str(value)}),
    (tuple, lambda value: value._asdict() if hasattr(value, "_asdict") else list(value)),
    (list, list),
    (Set, lambda value: sorted(value, key=repr)),  # an order of its own would differ between runs
    ((date, time), lambda value: value.isoformat()),
)


def plain(value: Any) -> Any:
    """Return a value made of what JSON has: classes with fields become objects, the rest becomes its text."""
    if value is None:
        return None
    for kind, shape in _SHAPES:
        if isinstance(value, kind):
            return _deep(shape(value))
    if is_dataclass(value) and not isinstance(value, type):
        return _deep({field.name: getattr(value, field.name) for field in fields(value)})
    if hasattr(value, "model_dump"):  # a pydantic model
        return _deep(value.model_dump())
    if hasattr(value, "tolist") and hasattr(value, "dtype"):  # a numpy array or scalar
        return _deep(value.tolist())
    # __str__ says more than __repr__ for paths, UUIDs and decimals, and is the same where a class has only one
    return repr(value) if isinstance(value, bytes | bytearray) else str(value)


def _deep(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value if value is None or type(value) in (bool, str, int, float) else plain(value)


def _key(name: Any) -> str:
    return name if type(name) is str else str(plain(name))


def state_of(snapshot: StateSnapshot) -> dict[str, Any]:
    """Return what a snapshot holds, ready for `as_text`."""
    place = snapshot.config.get("configurable", {})
    parent = (snapshot.parent_config or {}).get("configurable", {})
    metadata = dict(snapshot.metadata)
    return {
        "thread": place.get("thread_id"),
        "checkpoint": place.get("checkpoint_id"),
        "parent": parent.get("checkpoint_id"),
        "created_at": snapshot.created_at,
        "status": snapshot.status,
        "source": metadata.pop("source", None),
        "step": metadata.pop("step", None),
        "next": snapshot.next,
        "values": snapshot.values,
        "tasks": [
            {"id": task.id, "node": task.name, "status": task.status, "error": task.error} for task in snapshot.tasks
        ],
        "interrupts": snapshot.interrupts,
        "metadata": metadata,
    }
