"""The commands: what they take, what they print, and the code they end with.

Results go to stdout and everything else to stderr, what nodes print included. Exit codes: 0 done, 2 the command cannot
be carried out as it was given and nothing ran, 3 paused, 4 failed.
"""

from __future__ import annotations

import shlex
import sys
import traceback as tracebacks
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.pretty import pretty_repr

from pregel import (
    Command,
    GraphValidationError,
    Interrupt,
    InvalidAnswerError,
    InvalidRequestError,
    InvalidUpdateError,
    NoCheckpointError,
    Pregel,
    PregelError,
    SqliteSaver,
    StateSnapshot,
    __version__,
)

from . import USAGE
from .plain import as_text, parsed, state_of
from .progress import advance
from .target import attached, keeps_itself, load

PAUSED = 3
FAILED = 4
INTERRUPTED = 130  # as shells say it of a process that Ctrl-C ended
DB = Path("runs.db")

app = typer.Typer(
    help="Run graphs that pause for people and survive crashes.",
    epilog="Exit codes: 0 done, 2 not carried out (nothing ran), 3 paused, 4 failed.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE_OR_FILE:GRAPH",
        help="A StateGraph, a compiled graph, or a function that returns one: `package.module:graph`, `flow.py:graph`.",
        show_default=False,
    ),
]
Thread = Annotated[str, typer.Option("--thread", "-t", metavar="ID", help="The thread to work on.", show_default=False)]
Db = Annotated[
    Path | None, typer.Option("--db", metavar="FILE", help="The SQLite file with all threads.", show_default=str(DB))
]
Input = Annotated[str, typer.Option("--input", "-i", metavar="JSON|@FILE|-", help="The input.", show_default=False)]
Answers = Annotated[
    list[str] | None,
    typer.Option("--answer", "-a", metavar="JSON|@FILE|-", help="The answer to a question.", show_default=False),
]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID", help="The question that the --answer is for.", show_default=False),
]
At = Annotated[str | None, typer.Option("--checkpoint", metavar="ID", help="An older one.", show_default=False)]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Show no more than so many.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Traceback = Annotated[bool, typer.Option("--traceback", help="Print where in the code an error comes from.")]


class Call(NamedTuple):
    """What every command is told."""

    target: str
    thread: str
    db: Path | None
    json: bool
    traceback: bool


# The parameters of a command are its options, so they are as many as a user may want.


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    if version:
        print(f"pregel {__version__}")  # noqa: T201 - the result of a command
        raise typer.Exit


@app.command()
def run(
    target: Target, input: Input, thread: Thread, db: Db = None, json: Json = False, traceback: Traceback = False
) -> None:
    """Start a run, up to its end or its next pause.

    A thread that has something pending starts again from the entry, on the state that it has.
    """
    call = Call(target, thread, db, json, traceback)
    with _judged(call):
        values = parsed("--input", input)
        if not isinstance(values, dict):
            raise InvalidRequestError(f"--input: an input is a JSON object, not {values!r}")
        with _opened(call, new=True) as graph:
            state = advance(graph, thread, values, Console(stderr=True))
        _end(call, state)


@app.command()
def resume(
    target: Target,
    thread: Thread,
    answer: Answers = None,
    id: Ids = None,
    db: Db = None,
    json: Json = False,
    traceback: Traceback = False,
) -> None:
    """Answer questions and go on; without --answer, go on after a failure, a crash or a pause that asks nothing.

    With several questions pending give each --answer its --id, in the same order.
    """
    call = Call(target, thread, db, json, traceback)
    with _judged(call):
        values = [parsed("--answer", text) for text in answer or ()]
        with _opened(call) as graph:
            before = _stored(call, graph.get_state(thread_id=thread))
            answers = _paired(values, id or [], before.interrupts)
            request = Command(resume=answers) if answers else None
            state = advance(graph, thread, request, Console(stderr=True))
        _end(call, state)


@app.command()
def state(
    target: Target,
    thread: Thread,
    checkpoint: At = None,
    db: Db = None,
    json: Json = False,
    traceback: Traceback = False,
) -> None:
    """Show where a thread stands and what it asks."""
    call = Call(target, thread, db, json, traceback)
    with _judged(call):
        with _opened(call) as graph:
            place = {"thread_id": thread, **({"checkpoint_id": checkpoint} if checkpoint else {})}
            found = _stored(call, graph.get_state({"configurable": place}))
        if json:
            _print(as_text(state_of(found), indent=2))
        else:
            _show(call, found)


@app.command()
def history(
    target: Target,
    thread: Thread,
    limit: Limit = None,
    db: Db = None,
    json: Json = False,
    traceback: Traceback = False,
) -> None:
    """List the checkpoints of a thread, newest first; as JSON one object a line."""
    call = Call(target, thread, db, json, traceback)
    with _judged(call), _opened(call) as graph:
        out = sys.__stdout__ if False else None  # placeholder
