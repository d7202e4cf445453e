"""Other Python processes that use a saver."""

import os
import subprocess
import sys
import textwrap

from pregel.checkpoint import Key, Saver
from pregel.checkpoint.conformance import ids

PRELUDE = """
    import os, sys, threading
    import pregel
    from pregel.checkpoint import ConcurrentRunError, Key, Run, SqliteSaver
    from pregel.checkpoint.conformance import Writer, commit, record
"""


def process(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python process that can import what this one can."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PRELUDE) + textwrap.dedent(script), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def finish(running: subprocess.Popen[str], say: str = "") -> str:
    """Give the process its last input and return what it printed."""
    printed, errors = running.communicate(say, timeout=60)
    assert running.returncode == 0, errors
    return printed


def start_together(running: list[subprocess.Popen[str]]) -> None:
    """Wait until each has said that it is ready, then let all go on."""
    for each in running:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in running:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()


def check_turns(saver: Saver, kind: str, database: object) -> None:
    """Have two processes write to one thread: each checkpoint is one process's, and the other was told (rule 10.3)."""
    script = """
        made, refused = [], []
        print("ready", flush=True)
        sys.stdin.readline()
        with getattr(pregel, sys.argv[1])(sys.argv[2]) as saver:
            while len(made) < 100:
                run = saver.get(Key("thread")).run or Run("thread", sys.argv[3], 0)
                token = f"{sys.argv[3]}-{len(made) + len(refused)}"
                try:
                    saver.put(run, [commit(run.head + 1, token=token)], [])
                    made.append(token)
                except ConcurrentRunError:
                    refused.append(token)
        print(*made, len(refused))
    """
    writing = [process(script, kind, database, name) for name in ("one", "two")]
    start_together(writing)
    made: list[str] = []
    for each in writing:
        *tokens, refused = finish(each).split()
        made += tokens
        assert int(refused) >= 0  # how often they met is up to the machine
    kept = list(saver.list(Key("thread")))
    assert ids(kept) == list(range(200, 0, -1))
    assert sorted(saved.checkpoint.token for saved in kept) == sorted(made)
