"""Random histories on random graphs, on both savers and in both worlds, against a plain interpreter."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pregel import ConcurrentRunError, InMemorySaver, NoCheckpointError, Saver, SqliteSaver
from pregel.checkpoint import Commit, Run, TaskRecord
from tests.crash import interpreter as plain
from tests.crash.described import compiled, specs
from tests.crash.interpreter import BrokenError, Spec
from tests.crash.life import LIFE, Began, Killed, Life, Mortal
from tests.crash.store import check_history, head_of
from tests.helpers import World

EXAMPLES = 500 if os.environ.get("PREGEL_FULL") == "1" else 90
How = Literal["plain", "killed", "overtaken"]


class Step(NamedTuple):
    """One thing that is done to a thread: go on (or begin, or answer some), edit, look again, begin anew."""

    what: Literal["go", "edit", "again", "anew"]
    broken: bool = False
    how: How = "plain"
    when: int = 0  # after how many effects it is killed, or before which write it is overtaken
    mask: int = 0  # which questions are answered


GO = st.builds(
    Step,
    what=st.just("go"),
    broken=st.booleans(),
    how=st.sampled_from(["plain", "killed", "overtaken", "killed"]),
    when=st.integers(0, 14),
    mask=st.integers(0, 7),
)
OTHER = st.builds(Step, what=st.sampled_from(["edit", "again", "anew"]))
STEPS = st.lists(st.one_of(GO, GO, GO, OTHER), min_size=2, max_size=10)


class Overtaken(Mortal):
    """A saver that lets another run in before its n-th write."""

    def __init__(self, store: Saver, life: Life, when: int, intruder: Callable[[], None]) -> None:
        super().__init__(store, life)
        self._left = when
        self._intruder = intruder

    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        with self.life.lock:
            self._left -= 1
            now = self._left == 0
        if now:
            other = threading.Thread(target=self._intruder)
            other.start()
            other.join(30)
            assert not other.is_alive()
        super().put(run, commits, records)


class History:
    """One thread, done to step by step, with the interpreter beside it."""

    def __init__(self, spec: Spec, world: World, store: Saver, thread_id: str) -> None:
        self.spec = spec
        self.world = world
        self.store = store
        self.thread = thread_id
        self.env = plain.World()
        self.frame = plain.Frame(spec, self.env, {})
        self.status: Literal["new", "done", "paused", "failed"] = "new"
        self.firm: list[Began] = []  # bodies that ended in runs that were not cut off
        self.loose: list[Began] = []  # and in those that were: what was not recorded may end once more
        self.ids: dict[tuple[int, int], str] = {}  # by serial of a task, and -1 or the index of its question
        self.inputs = count()

    # --- steps ----------------------------------------------------------------------------------------------------

    def do(self, step: Step) -> None:
        if step.what == "go":
            self.go(step)
        elif step.what == "edit" and self.status != "new":
            self.edit()
        elif step.what == "again" and self.status in ("paused", "done"):
            self.check(self.outcome(self.call_again))
        elif step.what == "anew" and self.status in ("paused", "done"):
            self.begin(step)
        self.compare()

    def finish(self) -> None:
        """Go on, unbroken and with every answer, to the end."""
        for _ in range(60):
            if self.status == "done":
                break
            self.do(Step("go", mask=7))
        assert self.status == "done"
        self.count_bodies()

    def go(self, step: Step) -> None:
        self.env.broken = step.broken
        if self.status in ("new", "done"):
            self.begin(step)
        elif self.status == "failed":
            self.run(step, self.call_again)
        else:
            questions = self.frame.questions()
            chosen = [q for i, q in enumerate(questions) if step.mask & 1 << i % 3] or questions[:1]
            answers = {self.ids[q.task.serial, q.index]: f"{q.value}={next(self.inputs)}" for q in chosen}
            for question in chosen:
                plain.answer(question, answers[self.ids[question.task.serial, question.index]])
            self.run(step, lambda saver: self.world.resume(self.compile(saver), answers=answers, thread_id=self.thread))

    def begin(self, step: Step) -> None:
        number = next(self.inputs)
        values = {"log": [f"in{number}"], "x": number}
        self.frame.begin(values)
        self.run(step, lambda saver: self.world.invoke(self.compile(saver), values, thread_id=self.thread))

    def edit(self) -> None:
        number = next(self.inputs)
        values: dict[str, Any] = {"log": [f"edit{number}"]}
        if self.status != "failed":  # which of the siblings of a failure have run already, and seen x, is not said
            values["x"] = number
        life = Life()
        LIFE.set(life)  # the one before may have had no more than the breaths that it took
        self.world.update(self.compile(Mortal(self.store, life)), None, values, thread_id=self.thread)
        self.frame.fold(list(values.items()))

    # --- running --------------------------------------------------------------------------------------------------

    def compile(self, saver: Saver) -> Any:
        return compiled(self.spec, self.env, self.world.is_async, saver)

    def call_again(self, saver: Saver) -> Any:
        return self.world.invoke(self.compile(saver), None, thread_id=self.thread)

    def recover(self, saver: Saver) -> Any:
        return self.world.recover(self.compile(saver), thread_id=self.thread)

    def run(self, step: Step, call: Callable[[Saver], Any]) -> None:
        """Run in the interpreter and in the engine, which may be cut off and then goes on."""
        try:
            self.status = "done" if self.frame.advance() else "paused"
        except BrokenError:
            self.status = "failed"
        self.check(self.cut_off(step, call) if step.how != "plain" else self.outcome(call))

    def outcome(self, call: Callable[[Saver], Any]) -> Any:
        """Return the result, None if it raised what a node raised."""
        life = Life()
        LIFE.set(life)
        try:
            return call(Mortal(self.store, life))
        except BrokenError:
            return None
        finally:
            self.firm += life.ended

    def cut_off(self, step: Step, call: Callable[[Saver], Any]) -> Any:
        before = head_of(self.store, self.thread)
        life = Life(step.when if step.how == "killed" else None)
        LIFE.set(life)
        saver = (
            Overtaken(self.store, life, 1 + step.when % 6, self.intrude)
            if step.how == "overtaken"
            else Mortal(self.store, life)
        )
        try:
            return call(saver)
        except BrokenError:
            return None
        except (Killed, ConcurrentRunError):
            after = head_of(self.store, self.thread)
            begun = after is not None and (before is None or after.checkpoint.id != before.checkpoint.id)
            return self.outcome(self.recover if begun else call)
        finally:
            self.loose += life.ended

    def intrude(self) -> None:
        """Go on with the thread from elsewhere; all nodes are sync, since the event loop is busy with the other run."""
        life = Life()
        LIFE.set(life)
        try:
            compiled(self.spec, self.env, None, Mortal(self.store, life)).recover(thread_id=self.thread)
        except (BrokenError, NoCheckpointError):
            pass
        finally:
            self.loose += life.ended

    # --- comparing ------------------------------------------------------------------------------------------------

    def check(self, result: Any) -> None:
        """Compare the result of a call."""
        if self.status == "failed":
            assert result is None, result
            return
        assert result is not None
        asked = result.pop("__interrupt__", [])
        assert result == self.frame.state
        assert bool(asked) == (self.status == "paused")
        questions = self.frame.questions()
        assert [question.value for question in asked] == [question.value for question in questions]
        for question, interrupt in zip(questions, asked, strict=True):
            self.same_id((question.task.serial, question.index), interrupt.id)

    def compare(self) -> None:
        """Compare what is stored."""
        if self.status == "new":
            return
        snapshot = self.world.state(self.compile(self.store), thread_id=self.thread)
        assert snapshot.values == self.frame.state
        assert snapshot.status == self.status
        tasks = self.frame.tasks
        assert [task.name for task in snapshot.tasks] == [task.node.name for task in tasks]
        for task, shown in zip(tasks, snapshot.tasks, strict=True):
            self.same_id((task.serial, -1), shown.id)
        if self.status != "failed":
            assert [i.value for i in snapshot.interrupts] == [q.value for q in self.frame.questions()]
        check_history(self.store, self.thread)

    def same_id(self, key: tuple[int, int], id_: str) -> None:
        assert self.ids.setdefault(key, id_) == id_, "an id has changed while its task was pending"
        assert len(set(self.ids.values())) == len(self.ids), "an id has come again"

    def count_bodies(self) -> None:
        firm = Counter((body.namespace, body.task_id) for body in self.firm)
        assert not [task for task, times in firm.items() if times > 1], firm
        names = {(body.namespace, body.task_id): body.node for body in [*self.firm, *self.loose]}
        assert Counter(names.values()) == Counter(self.env.completed)


_numbers = count()


@pytest.fixture(params=["memory", "sqlite"], scope="module")
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saver]:
    """Each saver; every history has a thread of its own in it."""
    folder: Path = tmp_path_factory.mktemp("histories")
    made: Saver = InMemorySaver() if request.param == "memory" else SqliteSaver(folder / "runs.db")
    with made:
        yield made


@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(spec=specs(), steps=STEPS)
def test_a_random_history_ends_as_the_plain_interpreter_says(
    world: World, store: Saver, spec: Spec, steps: list[Step]
) -> None:
    """3.1 to 3.3, 5.5, 6.7, 8.2, 8.4, 9.3, 10.2, 10.3: same state, each body once, ids stable, one unbroken chain."""
    history = History(spec, world, store, f"t{next(_numbers)}")
    for step in steps:
        history.do(step)
    history.finish()
