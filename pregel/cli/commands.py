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
from textwrap import indent
from typing import Annotated, Any, NamedTuple, TextIO

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
    SqliteSaver,
    StateSnapshot,
    __version__,
)

from .plain import as_text, parsed, state_of
from .progress import advance
from .target import attached, keeps_itself, load

USAGE = 2
PAUSED = 3
FAILED = 4
INTERRUPTED = 130  # as shells say it of a process that Ctrl-C ended
DB = Path("runs.db")
REFUSALS = (InvalidRequestError, GraphValidationError, InvalidUpdateError)
"""Errors that say, unless they come from a node, that nothing ran."""

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
    out: TextIO  # stdout, which belongs to the result alone while nodes print to stderr


# The parameters of a command are its options, so they are as many as a user may want.


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    if version:
        typer.echo(f"pregel {__version__}")
        raise typer.Exit


@app.command()
def run(
    target: Target, input: Input, thread: Thread, db: Db = None, json: Json = False, traceback: Traceback = False
) -> None:
    """Start a run, up to its end or its next pause.

    A thread that has something pending starts again from the entry, on the state that it has.
    """
    call = Call(target, thread, db, json, traceback, sys.stdout)
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
    call = Call(target, thread, db, json, traceback, sys.stdout)
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
    call = Call(target, thread, db, json, traceback, sys.stdout)
    with _judged(call):
        with _opened(call) as graph:
            place = {"thread_id": thread, **({"checkpoint_id": checkpoint} if checkpoint else {})}
            found = _stored(call, graph.get_state({"configurable": place}), checkpoint)
        if json:
            _print(call, as_text(state_of(found), indent=2))
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
    """List the checkpoints of a thread, newest first."""
    call = Call(target, thread, db, json, traceback, sys.stdout)
    with _judged(call), _opened(call) as graph:
        _stored(call, graph.get_state(thread_id=thread))
        found = graph.get_state_history(thread_id=thread, limit=limit)
        if json:
            for number, each in enumerate(found):  # one by one: a history may be long
                _print(call, ("," if number else "[") + as_text(state_of(each)))
            _print(call, "]")
        else:
            for each in found:
                _print(call, _summary(each))


# --- around every command -----------------------------------------------------------------------------------------


@contextmanager
def _judged(call: Call) -> Iterator[None]:
    """Report what goes wrong, and end with the code for it."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        sys.stderr.write(f"pregel: stopped; go on with: {_command('resume', call)}\n")
        raise typer.Exit(INTERRUPTED) from None
    except (Exception, SystemExit) as error:  # a node that ends the process has failed as well
        if isinstance(error, BrokenPipeError) and not _notes(error):
            raise  # the reader of stdout has gone; typer ends quietly
        raise typer.Exit(_report(call, error)) from None


def _report(call: Call, error: BaseException) -> int:
    notes = _notes(error)
    refused = not notes and isinstance(error, REFUSALS)
    if call.traceback:
        tracebacks.print_exception(error)
    sys.stderr.write(f"pregel: {type(error).__name__}: {error}\n")
    if not call.traceback:
        sys.stderr.writelines(f"  {note}\n" for note in notes)
    if notes:
        sys.stderr.write(f"  what has finished is kept; go on with: {_command('resume', call)}\n")
    if call.json:
        told = {"type": type(error).__name__, "message": str(error), "code": getattr(error, "code", None)}
        outcome = {
            "status": "refused" if refused else "failed",
            "thread": call.thread,
            "error": told | {"notes": notes},
        }
        _print(call, as_text(outcome, indent=2))
    return USAGE if refused else FAILED


def _notes(error: BaseException) -> list[str]:
    """Return what the engine adds to the error of a node: where it was raised."""
    return getattr(error, "__notes__", [])


@contextmanager
def _opened(call: Call, *, new: bool = False) -> Iterator[Pregel[Any]]:
    """Open the graph on its database, a `new` one if need be. What it prints goes to stderr."""
    with redirect_stdout(sys.stderr):
        graph = load(call.target)
        if isinstance(graph, Pregel) and keeps_itself(graph):
            if call.db is not None:
                raise InvalidRequestError(f"{call.target} has a checkpointer of its own", hint="leave out --db")
            yield graph
            return
        path = DB if call.db is None else call.db
        if not new and not path.is_file():
            raise NoCheckpointError(f"there is no database {str(path)!r}", hint="name one with --db, or begin a run")
        if not path.parent.is_dir():
            raise InvalidRequestError(f"there is no folder {str(path.parent)!r} for the database")
        with SqliteSaver(path) as saver:
            yield attached(graph, saver)


def _stored(call: Call, found: StateSnapshot, checkpoint: str | None = None) -> StateSnapshot:
    """Return a state if there is one. Raises NoCheckpointError."""
    if found.status is None:
        what = f"no checkpoint {checkpoint}" if checkpoint else "nothing"
        where = "" if call.db is None else f" in {str(call.db)!r}"
        raise NoCheckpointError(
            f"{what} is stored for thread {call.thread!r}{where}", hint="pregel run begins one, --db names another file"
        )
    return found


def _paired(values: Sequence[Any], ids: Sequence[str], interrupts: Sequence[Interrupt]) -> dict[str, Any]:
    """Return the answers by the id of their question. Raises InvalidAnswerError if they do not fit."""
    pending = [question.id or "" for question in interrupts if question.when == "inside"]
    listed = f"pending: {', '.join(pending) or 'none'}"
    if not ids and len(values) == len(pending) == 1:
        return {pending[0]: values[0]}
    if values and not pending:
        raise InvalidAnswerError("no question is pending", hint="leave out --answer to go on")
    if len(ids) != len(values):
        raise InvalidAnswerError(f"{len(values)} --answer and {len(ids)} --id: each needs the other", hint=listed)
    if unknown := [id for id in ids if id not in pending]:
        raise InvalidAnswerError(f"{', '.join(unknown)}: no such question", hint=listed, pending=tuple(pending))
    if len(set(ids)) < len(ids):
        raise InvalidAnswerError("two answers to one question", hint=listed, pending=tuple(pending))
    return dict(zip(ids, values, strict=True))


# --- what they print ----------------------------------------------------------------------------------------------


def _end(call: Call, state: StateSnapshot) -> None:
    """Print how a run ended and end with the code for it."""
    if call.json:
        questions = [{**each.as_dict(), "command": _answer(call, each)} for each in state.interrupts]
        told = {name: state_of(state)[name] for name in ("status", "thread", "checkpoint", "values")}
        _print(call, as_text(told | {"interrupts": questions}, indent=2))
    else:
        _show(call, state)
    if state.status != "done":
        raise typer.Exit(PAUSED if state.status == "paused" else FAILED)


def _show(call: Call, state: StateSnapshot) -> None:
    checkpoint = state.config.get("configurable", {}).get("checkpoint_id")
    _print(call, f"{state.status}: thread {call.thread}, checkpoint {checkpoint}")
    for name, value in state.values.items():
        _print(call, indent(f"{name}: {_pretty(value)}", "  "))
    for task in state.tasks:
        if not task.interrupts:
            error = "" if task.error is None else f": {type(task.error).__name__}: {task.error}"
            _print(call, f"  {task.status} {task.id}{error}")
    for question in state.interrupts:
        _print(call, "")
        _print(call, f"{question.node} {'asks' if question.when == 'inside' else f'pauses {question.when}'}:")
        if question.when == "inside":
            _print(call, indent(_pretty(question.value), "  "))
            _print(call, f"  id: {question.id}")
        _print(call, f"  go on with: {_answer(call, question)}")


def _pretty(value: Any) -> str:
    """Return a value for people: text as it is, the rest as Python writes it, shortened where it is long."""
    if isinstance(value, str):
        return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in value)
    return pretty_repr(value, max_width=100, max_length=30, max_string=500)


def _summary(state: StateSnapshot) -> str:
    told = state_of(state)
    when = str(told["created_at"])[:19].replace("T", " ")
    following = f"  next: {', '.join(state.next)}" if state.next else ""
    return f"{told['checkpoint']}  {when}  step {told['step']:<3} {told['source']:<7} {told['status']:<8}{following}"


def _answer(call: Call, question: Interrupt) -> str:
    """Return the command that answers a question; `JSON` stands for the answer."""
    if question.when != "inside":
        return _command("resume", call)
    return _command("resume", call, "--id", question.id or "", "--answer", "JSON")


def _command(name: str, call: Call, *more: str) -> str:
    db = () if call.db is None else ("--db", str(call.db))
    return shlex.join(("pregel", name, call.target, "--thread", call.thread, *db, *more))


def _print(call: Call, text: str) -> None:
    call.out.write(f"{text}\n")
