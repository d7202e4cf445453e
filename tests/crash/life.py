"""A process as the tests see it: it begins tasks, writes, and ends after so many breaths; then nothing is written."""

import builtins
import threading
from collections.abc import Collection, Iterator, Sequence
from contextvars import ContextVar
from typing import NamedTuple

from pregel import Saver, get_config, get_runtime
from pregel.checkpoint import Commit, Found, Key, Run, Saved, TaskRecord


class Killed(BaseException):
    """Ends a run as SIGKILL would. A BaseException: `except Exception` in a node or in the engine must not stop it."""


class Began(NamedTuple):
    """A node body that began: where, which task, and on which checkpoint."""

    namespace: str
    task_id: str
    checkpoint: int
    node: str


class Life:
    """Dies once it has drawn so many breaths; notes each body that begins and ends while it lives."""

    def __init__(self, breaths: int | None = None) -> None:
        self.left = breaths
        self.dead = False
        self.began: list[Began] = []
        self.ended: list[Began] = []
        self.lock = threading.RLock()

    def breathe(self) -> None:
        """Come one step nearer to the end. Raises Killed there, and ever after."""
        with self.lock:
            if self.left is not None:
                self.left -= 1
                self.dead = self.dead or self.left < 0
            if self.dead:
                raise Killed

    def begin(self, body: Began) -> None:
        """Note a body that begins; what a dead process still does does not count."""
        with self.lock:
            if not self.dead:
                self.began.append(body)

    def end(self, body: Began) -> None:
        """Note a body that is about to return."""
        with self.lock:
            if not self.dead:
                self.ended.append(body)


# Which life the calling code belongs to. The engine's workers run in copies of the caller's context, so what is left
# over of a dead life breathes in its own.
LIFE: ContextVar[Life] = ContextVar("life")


def breathe(effect: object) -> None:
    """Do what the hook of the drivers asks for: one breath for each effect."""
    life = LIFE.get(None)
    if life is not None:
        life.breathe()


def begin() -> Began:
    """Say that a node's body begins; to be called first in every body."""
    configurable = get_config()["configurable"]
    runtime = get_runtime()
    place = str(configurable["checkpoint_ns"])
    body = Began(place, runtime.task_id, int(configurable["checkpoint_id"]), runtime.task_id.split("@")[0])
    LIFE.get().begin(body)
    return body


class Mortal(Saver):
    """A saver in the hands of one life: what is dead reads and writes nothing."""

    def __init__(self, store: Saver, life: Life) -> None:
        self.store = store
        self.life = life
        self.blocking = store.blocking  # type: ignore[misc] # the class variable of the saver behind

    def get(self, key: Key, epochs: Collection[int] | None = None) -> Found:
        with self.life.lock:
            self._live()
            return self.store.get(key, epochs)

    def list(self, key: Key, *, before: int | None = None, limit: int | None = None) -> Iterator[Saved]:
        return self.store.list(key, before=before, limit=limit)

    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        with self.life.lock:  # one that dies meanwhile waits: a write is there or it is not
            self._live()
            self.store.put(run, commits, records)

    def threads(self) -> Iterator[str]:
        return self.store.threads()

    def namespaces(self, thread_id: str) -> builtins.list[str]:  # plain `list` is the method above
        return self.store.namespaces(thread_id)

    def delete_thread(self, thread_id: str) -> None:
        self.store.delete_thread(thread_id)

    def close(self) -> None:
        """Leave the store open: it belongs to the test."""

    def _live(self) -> None:
        if self.life.dead:
            raise Killed
