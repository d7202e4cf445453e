"""Questions as values: what an interrupt carries, where it is found, how several become one list."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pregel import GraphInterrupt, Interrupt, pause_between
from pregel.checkpoint import Serializer
from pregel.interrupt import as_exception, find_interrupts, merge


class Quiet(Exception):
    """An error that is false in a boolean test."""

    def __len__(self) -> int:
        return 0


def chained(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def in_context(error: BaseException, context: BaseException) -> BaseException:
    error.__context__ = context
    return error


# --- 6.2 ----------------------------------------------------------------------------------------------------------


def test_an_interrupt_without_argument_asks_none() -> None:
    """6.2: `GraphInterrupt()` has value None, and is one question all the same."""
    error = GraphInterrupt()
    assert error.value is None
    assert [i.value for i in error.interrupts] == [None]


@pytest.mark.parametrize("payload", ["text", 0, {}, {"a": 1}, frozenset({1}), b"x"])
def test_any_object_is_one_question(payload: Any) -> None:
    """6.2: any object is a payload; `.value` is it as given and `str()` its text."""
    error = GraphInterrupt(payload)
    assert error.value is payload
    assert [i.value for i in error.interrupts] == [payload]
    assert str(error) == str(payload)


@pytest.mark.parametrize("make", [list, tuple])
def test_a_list_or_tuple_is_several_questions(make: Callable[[Any], Any]) -> None:
    """6.2: a list or tuple of objects and of `Interrupt` becomes a flat tuple; `.value` stays as given."""
    given = make([Interrupt("a", id="x"), "b", None])
    error = GraphInterrupt(given)
    assert error.value is given
    assert [(i.value, i.id) for i in error.interrupts] == [("a", "x"), ("b", None), (None, None)]


def test_an_interrupt_given_is_the_one_kept() -> None:
    """6.2: an `Interrupt` is kept as the object that it is."""
    question = Interrupt("a")
    assert GraphInterrupt(question).interrupts == (question,)
    assert GraphInterrupt(question).interrupts[0] is question


def test_a_pause_is_no_ordinary_exception() -> None:
    """6.1: `except Exception` does not catch a pause."""
    assert not issubclass(GraphInterrupt, Exception)


# --- 6.3 ----------------------------------------------------------------------------------------------------------


def test_interrupts_are_equal_by_id_and_value() -> None:
    """6.3: equal by id and value whatever else differs, hashed by id."""
    one = Interrupt("v", id="i", node="n", namespace=("a@1",), when="before", next=("m",))
    assert one == Interrupt("v", id="i")
    assert one != Interrupt("w", id="i")
    assert one != Interrupt("v", id="j")
    assert one != "v"
    assert hash(one) == hash(Interrupt(["unhashable"], id="i"))


def test_an_interrupt_survives_the_serialiser() -> None:
    """6.3: the round trip through bytes keeps every field and its type."""
    one = Interrupt({"q": (1, 2)}, id="a@1#0", node="a", namespace=("p@1", "c@2"), when="after", next=("b", "c"))
    back = Serializer().decode(Serializer().encode(one))
    assert type(back) is Interrupt
    assert back.as_dict() == one.as_dict()
    assert type(back.value["q"]) is tuple
    assert type(back.namespace) is tuple
    assert type(back.next) is tuple


def test_an_interrupt_shows_itself_to_a_front_end() -> None:
    """6.3: `as_dict()` names everything, the payload as it was given."""
    payload = {"q": 1}
    shown = Interrupt(payload, id="i", node="n").as_dict()
    assert shown == {
        "id": "i",
        "value": payload,
        "node": "n",
        "namespace": (),
        "when": "inside",
        "next": (),
        "schema": None,
        "asked_at": None,
    }
    assert shown["value"] is payload
    assert "'i'" in repr(Interrupt(payload, id="i"))


# --- 6.10 ---------------------------------------------------------------------------------------------------------

ASKED = GraphInterrupt("?")
FOUND: dict[str, BaseException] = {
    "itself": ASKED,
    "its cause": chained(ValueError(), ASKED),
    "its context": in_context(ValueError(), ASKED),
    "a cause of a context": in_context(ValueError(), chained(KeyError(), ASKED)),
    "a member of a group": BaseExceptionGroup("", [ValueError(), ASKED]),
    "a member of a group in a group": BaseExceptionGroup("", [BaseExceptionGroup("", [ASKED])]),
    "the cause of a member of a group": ExceptionGroup("", [chained(ValueError(), ASKED)]),  # type: ignore[type-var] # what chained returns is a ValueError
    "the cause of a group": chained(ExceptionGroup("", [ValueError()]), ASKED),
    "below an error that is false": in_context(ValueError(), chained(Quiet(), ASKED)),
    "below a cause that is false": chained(ValueError(), chained(Quiet(), ASKED)),
}


@pytest.mark.parametrize("where", FOUND)
def test_an_interrupt_is_found_wherever_it_hides(where: str) -> None:
    """6.10: an error is searched: itself, cause, context, members of groups."""
    assert find_interrupts(FOUND[where]) == (ASKED,)


def test_a_cause_goes_before_the_context() -> None:
    """6.10: `__cause__`, else `__context__`: with a cause the context is not looked at."""
    error = chained(in_context(ValueError(), GraphInterrupt("context")), ASKED)
    assert find_interrupts(error) == (ASKED,)
    assert find_interrupts(chained(in_context(ValueError(), ASKED), KeyError())) == ()


def test_a_suppressed_context_is_not_searched() -> None:
    """6.10: `raise ... from None` says that the context does not count."""
    error = in_context(ValueError(), ASKED)
    assert find_interrupts(error) == (ASKED,)
    error.__suppress_context__ = True
    assert find_interrupts(error) == ()


def test_a_circle_of_errors_is_searched_once() -> None:
    """6.10: errors that lead back to each other end the search."""
    first, second = ValueError(1), ValueError(2)
    chained(first, second)
    in_context(second, first)
    assert find_interrupts(first) == ()
    group = BaseExceptionGroup("", [first, ASKED])
    second.__context__ = group
    assert find_interrupts(group) == (ASKED,)


def test_a_long_chain_of_errors_is_searched_to_its_end() -> None:
    """6.10: the depth of a chain is no limit."""
    error: BaseException = ASKED
    for number in range(5000):
        error = chained(ValueError(number), error)
    assert find_interrupts(error) == (ASKED,)
    while error.__cause__ is not None:  # freed link by link, or the interpreter would recurse
        error, error.__cause__ = error.__cause__, None


def test_several_interrupts_are_all_found_in_order() -> None:
    """6.10: several are merged, in the order in which they stand."""
    other = GraphInterrupt("other")
    group = BaseExceptionGroup("", [ASKED, ExceptionGroup("", [chained(ValueError(), other)]), ASKED])  # type: ignore[type-var] # as above
    assert find_interrupts(group) == (ASKED, other)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_below_a_stop_nothing_is_a_question(stop: type[BaseException]) -> None:
    """6.10: not under KeyboardInterrupt, SystemExit, CancelledError: somebody wants the run to end."""
    assert find_interrupts(in_context(stop(), ASKED)) == ()
    assert find_interrupts(chained(ValueError(), in_context(stop(), ASKED))) == ()
    assert find_interrupts(BaseExceptionGroup("", [in_context(stop(), ASKED)])) == ()


# --- 6.4, 7.8 -----------------------------------------------------------------------------------------------------


def test_lists_of_several_tasks_become_one_flat_list() -> None:
    """6.4: one flat list in the order given."""
    a, b, c = Interrupt("a"), Interrupt("b"), Interrupt("c")
    assert merge([(a, b), (), (c,)]) == [a, b, c]
    assert merge([]) == []


@pytest.mark.parametrize("payload", [None, "q", ["a"], ["a", "b"], ("a",), [], {"k": 1}])
def test_one_pausing_task_hands_up_its_payload_as_given(payload: Any) -> None:
    """6.4: from one task its payload as given."""
    assert as_exception([GraphInterrupt(payload)]).value is payload


def test_several_pausing_tasks_hand_up_a_flat_list() -> None:
    """6.4: from several a flat list, list payloads spliced in."""
    several = [GraphInterrupt("a"), GraphInterrupt(["b", "c"]), GraphInterrupt(("d",)), GraphInterrupt({"e": 1})]
    assert as_exception(several).value == ["a", "b", "c", "d", {"e": 1}]


def test_a_flat_list_of_one_plain_item_is_that_item() -> None:
    """6.4: a list of exactly one item that is no `Interrupt` is that item."""
    assert as_exception([GraphInterrupt("a"), GraphInterrupt([])]).value == "a"
    question = Interrupt("a")
    assert as_exception([GraphInterrupt(question), GraphInterrupt([])]).value == [question]


@pytest.mark.parametrize(
    ("current", "following", "pauses"),
    [("a", "b", True), ("a", "a", False), (None, "a", False), (None, None, False), ("a", None, True)],
)
def test_the_seed_predicate(current: str | None, following: str | None, pauses: bool) -> None:
    """7.8: no pause without a current node, none when next is current."""
    assert pause_between(current, following) is pauses
