"""Random graphs with random pauses, answered in any order and in part, end as if all answers had been known before."""

import os
import re
from collections.abc import Collection, Iterator
from itertools import count, cycle, islice
from random import Random
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from pregel import InMemorySaver, Interrupt, InvalidAnswerError, Saver, StateSnapshot
from tests.behaviour.random_graphs import Graph, Kit, answer_to, asked, compiled, graphs, known
from tests.helpers import World

EXAMPLES = 200 if os.environ.get("PREGEL_FULL") == "1" else 16
BODIES = 16  # more of them say the same more slowly
STOPS = 1000


class Step(NamedTuple):
    """What is done at a stop, in which world, and whether by a graph that was compiled anew."""

    what: Literal["answer", "go", "recover", "wrong", "edit"]
    chance: int = 0  # which questions are answered, or which wrong id is given
    is_async: bool = False
    anew: bool = False


STEPS = st.lists(
    st.builds(
        Step,
        what=st.sampled_from(["answer", "answer", "answer", "go", "go", "recover", "wrong", "edit"]),
        chance=st.integers(0, 999),
        is_async=st.booleans(),
        anew=st.sampled_from([False, False, True]),
    ),
    min_size=1,
    max_size=12,
)


def is_question(pause: Interrupt) -> bool:
    return pause.when == "inside"


def task_of(id_: str) -> str:
    """Return the task that an id of a pause belongs to."""
    above, bar, last = id_.rpartition("|")
    return above + bar + re.split("[#!]", last)[0]


def node_of(task: str) -> str:
    return task.rpartition("|")[2].partition("@")[0]


def within(task: str) -> tuple[str, ...]:
    """Return how ids begin of a task and of all that it calls; a graph with a memory has names for ids (8.5)."""
    names = re.sub(r"@[\d.]+", "", task)
    return f"{task}#", f"{task}|", f"{names}#", f"{names}|"


def pending_edges(state: StateSnapshot) -> Iterator[str]:
    """Yield the tasks, here and below, that decide about edges."""
    for task in state.tasks:
        if task.id.endswith("/edge"):
            yield "|".join(filter(None, [state.config["configurable"]["checkpoint_ns"], task.id]))
        for child in task.children:
            yield from pending_edges(child)


class History:
    """One thread of a graph that pauses, and what was seen of it so far."""

    def __init__(self, spec: Graph, saver: Saver, thread_id: str) -> None:
        self.spec = spec
        self.saver = saver
        self.thread = thread_id
        self.kit = Kit(asked, pauses=True)
        self.graph = compiled(spec, self.kit, saver)
        self.world = World("sync")
        self.values: dict[str, Any] = {}
        self.pending: list[Interrupt] = []
        self.told: dict[str, dict[str, Any]] = {}  # all there ever was to say of an id
        self.gone: list[str] = []  # ids of questions that were answered and of pauses that were passed
        self.listed = spec.listed()
        self.withheld = spec.withheld()
        self.lost = spec.lost()
        self.starts: set[str] = set()
        self.ends: set[str] = set()

    # --- steps ----------------------------------------------------------------------------------------------------

    def begin(self, tag: str) -> None:
        self.check(self.world.invoke(self.graph, {"tag": tag}, thread_id=self.thread), None)

    def do(self, step: Step) -> None:
        """Do one step at a stop."""
        note(f"{step} at {[question.id for question in self.pending]}")
        self.world = World("async" if step.is_async else "sync")
        if step.anew:
            self.graph = compiled(self.spec, self.kit, self.saver)
        {
            "answer": self.answer,
            "go": self.go,
            "recover": self.recover,
            "wrong": self.wrong,
            "edit": self.edit,
        }[step.what](Random(step.chance))

    def answer(self, random: Random) -> None:
        """Answer some questions, in any order; a pause that is no question is passed by it (7.6)."""
        questions = self.questions
        if not questions:
            return self.go(random)
        chosen = random.sample(questions, random.randint(1, len(questions)))
        answers = {str(question.id): answer_to(question.value) for question in chosen}
        result = self.world.resume(self.graph, answers=answers, thread_id=self.thread)
        return self.check(result, [*answers, *self.static])

    def go(self, random: Random) -> None:
        """Go on without an answer: static pauses are passed, and nothing else."""
        self.check(self.world.invoke(self.graph, None, thread_id=self.thread), self.static)

    def recover(self, random: Random) -> None:
        """Recover: there is nothing to recover, and recorded pauses are not passed (7.6)."""
        self.check(self.world.recover(self.graph, thread_id=self.thread), ())

    def wrong(self, random: Random) -> None:
        """Answer what is no question, or no longer one: refused, also beside a question that is one (6.6)."""
        head = self.world.state(self.graph, thread_id=self.thread).config
        answers = {random.choice(["nobody@1#0", *self.gone, *self.static]): "wrong"}
        if self.questions and random.random() < 0.5:
            answers[str(random.choice(self.questions).id)] = "right"
        with pytest.raises(InvalidAnswerError):
            self.world.resume(self.graph, answers=answers, thread_id=self.thread)
        assert self.world.state(self.graph, thread_id=self.thread).config == head
        self.check(None, ())

    def edit(self, random: Random) -> None:
        """Write nothing: ids and pauses stay (9.3)."""
        self.world.update(self.graph, None, {}, thread_id=self.thread)
        self.check(None, ())

    @property
    def questions(self) -> list[Interrupt]:
        return [pause for pause in self.pending if is_question(pause)]

    @property
    def static(self) -> list[str]:
        return [str(pause.id) for pause in self.pending if not is_question(pause)]

    # --- checking -------------------------------------------------------------------------------------------------

    def check(self, result: dict[str, Any] | None, released: Collection[str] | None) -> None:
        """Check what a call returned and left; `released` is what it answered or passed, None if it began the run."""
        before = [self.told_of(pause) for pause in self.pending]
        state = self.world.state(self.graph, thread_id=self.thread, subgraphs=True)
        self.pending = list(state.interrupts)
        now = [self.told_of(pause) for pause in self.pending]
        assert state.status == ("paused" if now else "done")
        assert now or state.next == ()
        if result is not None:
            asks = result.pop("__interrupt__", [])
            assert [self.told_of(pause) for pause in asks] == now
            assert result == state.values
        self.check_ids(now)
        self.check_edges(state)
        self.check_bodies(released)
        if released is not None:
            self.gone += released
            kept = [pause for pause in before if pause["id"] not in released]
            assert [pause for pause in now if pause in before] == kept, "what was not answered is no longer pending"
            if not released:
                assert (now, state.values) == (before, self.values)
        assert not {pause["id"] for pause in now} & set(self.gone), "what was answered or passed is pending again"
        self.values = state.values

    def owner(self, task: str) -> str | None:
        """Return the task that runs all of this one again, as it calls a graph that keeps nothing, else None (8.5)."""
        depth = self.lost.get(node_of(task))
        above, bar, last = "|".join(task.split("|")[:depth]).rpartition("|")
        return above + bar + last.partition("#")[0] if depth else None

    def told_of(self, pause: Interrupt) -> dict[str, Any]:
        """Return all there is to say of a pause; where nothing is kept it is asked anew, at another time (8.5)."""
        told = pause.as_dict()
        return {**told, "asked_at": None} if self.owner(task_of(told["id"])) else told

    def check_edges(self, state: StateSnapshot) -> None:
        """At a pause after a node its edges are pending, if they are to be decided later, and no others (7.3)."""
        tasks = [task_of(str(pause.id)) for pause in self.pending if pause.when == "after"]
        shown = [task for task in tasks if node_of(task) in self.withheld and not self.owner(task)]
        assert sorted(pending_edges(state)) == sorted(f"{task}/edge" for task in shown)

    def check_ids(self, now: list[dict[str, Any]]) -> None:
        ids = [pause["id"] for pause in now]
        assert len(set(ids)) == len(ids)
        for pause in now:
            assert self.told.setdefault(pause["id"], pause) == pause, "an id stands for two things"
            mark = re.search("!(before|after)$", pause["id"])
            assert pause["when"] == (mark[1] if mark else "inside")
        payloads = [pause["value"] for pause in self.told.values() if pause["value"] is not None]
        assert len(set(payloads)) == len(payloads), "a question was asked under two ids"

    def check_bodies(self, released: Collection[str] | None) -> None:
        """A body starts for the first time, or again since it or a child of it was released; never once completed.

        Where nothing is kept, all bodies of a call run again, completed ones too, when one of them was released (8.5).
        """
        started = self.kit.started.take()
        assert len(set(started)) == len(started)
        assert not self.ends & set(started), "a completed task was run again"
        if released is not None:
            assert released or not started
            for task in self.starts & set(started):
                around = within(self.owner(task) or task)
                assert any(id_.startswith(around) for id_ in released), f"{task} ran for nothing"
        self.starts |= set(started)
        passed = {*self.gone, *(released or ())}
        assert {id_ for task in started for id_ in self.pauses_at(task, "before")} <= passed, "7.1: it did not wait"
        self.ends |= {task for task in self.kit.completed.take() if not self.owner(task)}

    def check_pauses(self) -> None:
        """Each task of a node that is listed or wished it was paused at, and no other (7.1, 7.2, 7.4)."""
        pauses = {id_ for id_ in self.told if "!" in id_ and id_.rpartition("!")[0] in self.starts}
        expected = [id_ for task in self.starts for when in ("before", "after") for id_ in self.pauses_at(task, when)]
        assert pauses == set(expected)
        wishes = self.kit.wishes
        assert {id_: self.told[id_]["value"] for id_ in pauses} == {
            id_: wishes.get(task_of(id_)) if id_.endswith("!after") else None for id_ in pauses
        }

    def check_kept(self) -> None:
        """Nothing is stored of a graph that keeps nothing, nor of one below it (8.5)."""
        lost = {task.rpartition("|")[0] for task in self.starts if self.owner(task)}
        assert not lost & set(self.saver.namespaces(self.thread))

    def pauses_at(self, task: str, when: str) -> list[str]:
        """Return the id of the pause at a task, if its node has one."""
        return [f"{task}!{when}"] if (node_of(task), when) in self.listed else []


def shape(values: dict[str, Any], spec: Graph) -> dict[str, Any]:
    """Return values to compare: with edges decided later, packets may have been written in another order (3.1, 7.3)."""
    return values if spec.is_ordered else {**values, "log": sorted(values["log"], key=repr)}


def check_memories(kit: Kit) -> None:
    """A body in a graph with a memory finds all that ran there in earlier steps, of this call and before (8.5)."""
    for found in kit.memories.values():
        assert len(set(found)) == len(found), "a node found what it had found before"
        numbers = sorted(number for number, _ in found)
        assert numbers == [numbers.index(number) for number in numbers]


_numbers = count()


@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(spec=graphs(), steps=STEPS)
def test_pauses_change_nothing_but_time(saver: Saver, spec: Graph, steps: list[Step]) -> None:
    """5.5, 6.4 to 6.8, 7.1 to 7.6, 8.2, 8.4, 8.5, 9.3: as if all was told before, each body once, stable ids."""
    thread = f"t{next(_numbers)}"
    foretold = Kit(known, pauses=False)
    oracle = compiled(spec, foretold, InMemorySaver())
    tags = ["", "again"] if spec.remembers else [""]  # a memory lasts over the runs of a thread
    expected = [oracle.invoke({"tag": tag}, thread_id=thread) for tag in tags]
    assume(len(foretold.labels.order) <= BODIES)
    history = History(spec, saver, thread)
    for tag, values in zip(tags, expected, strict=True):
        history.begin(tag)
        for step in islice(cycle([*steps, Step("answer")]), STOPS):
            if not history.pending:
                break
            history.do(step)
        assert not history.pending
        assert shape(history.values, spec) == shape(values, spec)
    check_memories(foretold)  # also here, since both runs could forget
    check_memories(history.kit)
    assert len(set(foretold.labels.order)) == len(foretold.labels.order)
    assert set(history.kit.labels.order) == set(foretold.labels.order)
    history.check_pauses()
    history.check_kept()
    history.go(Random(0))  # 5.5: a finished thread returns its output and runs nothing
