"""From the input to the result over as many lives as it takes, each in a graph that was compiled anew."""

from collections.abc import Iterable
from typing import Any

from pregel import Saver
from pregel.types import Durability
from tests.crash.graphs import Case
from tests.crash.life import LIFE, Began, Killed, Life, Mortal
from tests.crash.store import Task, check_history, head_of, recorded
from tests.helpers import World

THREAD = "t"


class Story:
    """Runs a case to its end. `deaths` lists after how many breaths each life ends; the last one lives on."""

    def __init__(self, case: Case, world: World, store: Saver, durability: Durability) -> None:
        self.case = case
        self.world = world
        self.store = store
        self.durability = durability
        self.began: list[Began] = []
        self.died = 0
        self._over: set[Task] = set()

    def tell(self, deaths: Iterable[int]) -> dict[str, Any]:
        """Return the result; assert after each death that no recorded task has begun since (rule 10.2)."""
        life = Life()
        for breaths in (*deaths, None):
            life = Life(breaths)
            try:
                result = self.live(Mortal(self.store, life), life)
            except Killed:
                self.died += 1
                self._bury(life)
            else:
                self._bury(life)
                return result
        raise AssertionError("the last life never ends")

    def live(self, saver: Saver, life: Life) -> dict[str, Any]:
        """Go on from where the store says the run is, answering all that is asked and passing pauses, in one life."""
        LIFE.set(life)
        result = self._rise(saver)
        while "__interrupt__" in result:
            questions = [question for question in result["__interrupt__"] if question.when == "inside"]
            answers = {question.id: self.case.answers[question.value] for question in questions}
            graph = self.case.make(self.world.is_async, saver)
            call, told = (self.world.resume, {"answers": answers}) if answers else (self.world.invoke, {"input": None})
            result = call(graph, **told, thread_id=THREAD, durability=self.durability)
        return result

    def _rise(self, saver: Saver) -> dict[str, Any]:
        """Begin the run, or go on with it if it has begun: a begun run is never lost (rule 10.2)."""
        graph = self.case.make(self.world.is_async, saver)
        if head_of(self.store, THREAD) is None:
            return self.world.invoke(graph, self.case.input, thread_id=THREAD, durability=self.durability)
        return self.world.recover(graph, thread_id=THREAD, durability=self.durability)

    def _bury(self, life: Life) -> None:
        again = {(body.namespace, body.task_id) for body in life.began} & self._over
        assert not again, f"ran again though recorded: {sorted(again)}"
        self.began += life.began
        self._over = recorded(self.store, THREAD, self.began)
        if self.store.namespaces(THREAD):
            check_history(self.store, THREAD)
