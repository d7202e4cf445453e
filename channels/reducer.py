"""A value into which every write is folded by a function of two arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import add
from typing import Any, TypeVar, get_origin

from .base import MISSING, Channel, sole_overwrite


def empty_of(type_: Any) -> Callable[[], Any] | None:
    """Return what makes an empty `T()`, or None when T cannot be made without arguments."""
    maker = get_origin(type_) or type_
    try:
        maker()
    except Exception:  # noqa: BLE001 - any refusal means the same: there is no empty value of this type
        return None
    return maker  # type: ignore[no-any-return]


OperatorT = TypeVar("OperatorT", bound=Callable[[Any, Any], Any])


def foldable(operator: OperatorT) -> OperatorT:
    """Declare that a reducer gives the same value whenever the same writes are folded into the same value again.

    A decorator. State that grows is then stored by what was written to it, and folded again when it is read; a reducer
    that looks at a clock, at chance or at anything else outside of its arguments must not be declared so.
    """
    operator.foldable = True  # type: ignore[attr-defined] # a mark that `grows` looks for
    return operator


class BinaryOperatorAggregate(Channel):
    """Starts at the default, else at `T()`, and folds writes in task order (rule 2.1).

    Without a default or an empty `T()` the first write is taken as it is. `operator` must return the new value and may
    not change its arguments.
    """

    __slots__ = ("default", "grows", "operator", "type")

    def __init__(
        self, type: Any, operator: Callable[[Any, Any], Any], default: Callable[[], Any] | None = None
    ) -> None:
        self.type = type
        self.operator = operator
        self.default = default or empty_of(type)
        self.grows = "fold" if getattr(operator, "foldable", False) else ""
        if operator is add and (get_origin(type) or type) is list:
            self.grows = "append"

    def initial(self) -> Any:
        """Return a fresh default, else an empty `T()`, else MISSING."""
        return MISSING if self.default is None else self.default()

    def update(self, value: Any, writes: Sequence[Any]) -> Any:
        """Fold the writes. Raises ChannelError for an Overwrite beside others, and whatever the operator raises."""
        replaced = sole_overwrite(writes)
        if replaced is not MISSING:
            return replaced
        operator = self.operator
        if operator is add and type(value) is list and all(type(write) is list for write in writes):
            # what the loop below gives, without a copy of the whole list for each of the writes (rule 3.7)
            return list(chain(value, *writes))
        for write in writes:
            value = write if value is MISSING else operator(value, write)
        return value

    def __repr__(self) -> str:
        return f"BinaryOperatorAggregate({self.type!r}, {self.operator!r})"
