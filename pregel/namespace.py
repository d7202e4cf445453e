"""Namespaces as text: the path of task ids from the root to a graph, joined by "|"; the root's is empty.

A call after the first of a task adds `#1`, `#2`, ..., one with a key `#=key`. A graph with a memory has the names of
nodes where others have the ids of tasks, since its state outlasts them (rule 8.5).
"""

from __future__ import annotations

import re

_ACTIVATION = re.compile(r"@[\d.]+")


def join(namespace: str, part: str) -> str:
    """Return the id of something inside a namespace."""
    return f"{namespace}|{part}" if namespace else part


def parts(namespace: str) -> tuple[str, ...]:
    """Return the components of a namespace, as users see them."""
    return tuple(namespace.split("|")) if namespace else ()


def levels(namespace: str) -> list[str]:
    """Return the namespaces from the first below the root down to this one."""
    components = parts(namespace)
    return ["|".join(components[: depth + 1]) for depth in range(len(components))]


def without_ids(namespace: str) -> str:
    """Return a namespace with the names of nodes only, whichever of their tasks it leads through."""
    return _ACTIVATION.sub("", namespace)


def is_memory(namespace: str) -> bool:
    """Whether a namespace outlasts the tasks that call its graph."""
    return bool(namespace) and "@" not in namespace.rpartition("|")[2]


def owner(namespace: str) -> str:
    """Return the calling task of a namespace: its own path without the mark of the call."""
    above, bar, last = namespace.rpartition("|")
    return above + bar + last.partition("#")[0]
