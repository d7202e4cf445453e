"""Where the state of a namespace lies: from the root down to the checkpoint that counts now.

It is found by pointers and never by search: the state of a child is the newest that was made under the line of the
level above it, a memory the newest made under the root's line, else the one that the root points to (rule 8.5).
"""

from __future__ import annotations

from typing import NamedTuple

from .checkpoint import Found, Serializer
from .effects import Program, load
from .namespace import is_memory, levels
from .stored import memory_of


class Located(NamedTuple):
    """A namespace as it stands: the root, the levels between, and itself.

    A graph without a memory that is on the way to one is left out. `remembered`: a memory in which nothing goes on.
    """

    root: Found
    between: list[Found]
    found: Found
    remembered: bool = False


def locate(namespace: str, serializer: Serializer) -> Program[Located]:
    """Find the state of a namespace."""
    root = found = yield from load("")
    between: list[Found] = []
    remembered = False
    for level in levels(namespace) if root.saved is not None else ():
        if found is not root and found.saved is not None:
            between.append(found)
        if is_memory(level):
            found, remembered = yield from _memory(level, root, serializer)
        elif found.saved is not None:
            found, remembered = (yield from load(level, None, found.saved.checkpoint.line)), False
    return Located(root, between, found, remembered)


def _memory(namespace: str, root: Found, serializer: Serializer) -> Program[tuple[Found, bool]]:
    assert root.saved is not None, "the caller has looked"
    found = yield from load(namespace, None, root.saved.checkpoint.line)
    number = memory_of(root.saved, serializer).get(namespace)
    if found.saved is not None or number is None:
        return found, False
    return (yield from load(namespace, number)), True
