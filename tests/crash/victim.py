"""A program that forks processes which run a case on SQLite and are killed by SIGKILL at the boundaries of the saver.

`python -m tests.crash.victim CASE WORLD FOLDER K...` tells for each K one story of three processes: the first dies at
boundary K, the second, which recovers, at another one, the third finishes. A boundary lies before and after each `put`.
It prints a JSON line for each: K, whether the first died, and what went wrong. This process has one thread, so it may
fork at any time.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from pregel import SqliteSaver
from pregel.checkpoint import Commit, Run, TaskRecord
from tests.crash.graphs import CASES, Case
from tests.crash.life import Began, Life, Mortal
from tests.crash.store import check_history, recorded
from tests.crash.story import THREAD, Story
from tests.helpers import World


class Diary(Life):
    """Writes each body that begins to a file at once, where it outlives the process."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def begin(self, body: Began) -> None:
        os.write(self._file, json.dumps(body).encode() + b"\n")


class Doomed(Mortal):
    """Kills its process at a boundary; 0 never."""

    def __init__(self, store: SqliteSaver, life: Life, boundary: int) -> None:
        super().__init__(store, life)
        self._left = boundary

    def put(self, run: Run, commits: Sequence[Commit], records: Sequence[TaskRecord]) -> None:
        with self.life.lock:
            self._boundary()
            self.store.put(run, commits, records)
            self._boundary()

    def _boundary(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def live(case: Case, world: World, database: Path, diary: Path, boundary: int) -> bool:
    """Run the case in a process of its own; return whether it was killed. Raises RuntimeError if it failed."""
    child = os.fork()
    if not child:
        status = 1
        try:
            life = Diary(diary)
            with SqliteSaver(database) as store:
                result = Story(case, world, store, "sync").live(Doomed(store, life, boundary), life)
            status = 0 if result == case.output else 2
            if status:
                sys.stderr.write(f"{result!r} instead of {case.output!r}\n")
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if status:
        raise RuntimeError(f"the process ended with status {status}")
    return False


def read(diary: Path) -> list[Began]:
    """Return the bodies that have begun so far; a last line torn by the kill cannot be: it is one write."""
    return [Began(*json.loads(line)) for line in diary.read_text().splitlines()] if diary.exists() else []


def tell(case: Case, world: World, folder: Path, boundary: int) -> bool:
    """Tell the story of three processes; return whether the first was killed. Raises AssertionError, RuntimeError."""
    database, diary = folder / "runs.db", folder / "diary"
    died = False
    for life, dies_at in enumerate((boundary, 1 + boundary % 7, 0)):
        before = read(diary)
        over: set[tuple[str, str]] = set()
        if life:
            with SqliteSaver(database) as store:
                over = recorded(store, THREAD, before)
        killed = live(case, world, database, diary, dies_at)
        died = died or killed
        again = {(body.namespace, body.task_id) for body in read(diary)[len(before) :]} & over
        assert not again, f"ran again though recorded: {sorted(again)}"
        with SqliteSaver(database) as store:
            if store.namespaces(THREAD):
                check_history(store, THREAD)
        if not killed:
            break
    return died


def main() -> None:
    """Tell a story for each boundary that is asked for, and all of them up to the last for none."""
    name, world, folder, *wanted = sys.argv[1:]
    case = next(case for case in CASES if case.name == name)
    boundaries = [int(text) for text in wanted] or range(1, 10_000)
    for boundary in boundaries:
        place = Path(folder) / str(boundary)
        place.mkdir()
        fault, died = None, True
        try:
            died = tell(case, World(world), place, boundary)
        except (AssertionError, RuntimeError) as error:
            fault = str(error)
        sys.stdout.write(json.dumps([boundary, died, fault]) + "\n")
        if not died:
            break


if __name__ == "__main__":
    main()
