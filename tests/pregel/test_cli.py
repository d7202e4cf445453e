"""The command line: what each command prints, and the code it ends with."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pregel.cli.commands import app
from pregel.cli.plain import plain

ROOT = Path(__file__).parents[2]
FLOW = """
import operator
from typing import Annotated, Any, TypedDict
from pregel import START, StateGraph, interrupt

class State(TypedDict, total=False):
    amount: int
    log: Annotated[list[str], operator.add]

def ask(state: State) -> dict[str, Any]:
    print("a node prints")
    return {"log": [f"a {interrupt('a?')}"]}

def other(state: State) -> dict[str, Any]:
    if state["amount"] > 1:
        return {"log": [f"b {interrupt({'question': 'b?'})}"]}
    if state["amount"] < 0:
        raise ValueError("less than nothing")
    return {"log": ["b"]}

graph = StateGraph(State).add_node(ask).add_node(other).add_edge(START, "ask").add_edge(START, "other")
plain = StateGraph(State).add_node(other).add_edge(START, "other")
compiled = plain.compile()
def made(): return compiled
number = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a graph in it, which leaves no trace in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    (tmp_path / "flow.py").write_text(FLOW, encoding="utf-8")
    return tmp_path


def pregel(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, words, input=stdin)


def start(target: str, amount: int, *more: str) -> Result:
    return pregel("run", target, "--input", json.dumps({"amount": amount}), "--thread", "t", *more)


def told(result: Result, code: int = 0) -> Any:
    """Return what a command printed as JSON."""
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def process(*words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pregel.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


@pytest.mark.parametrize("target", ["flow.py:plain", "./flow.py:compiled", "flow:made"])
def test_a_builder_a_compiled_graph_and_a_function_run_from_file_or_module(target: str) -> None:
    done = told(start(target, 1, "--json"))
    assert (done["status"], done["values"]) == ("done", {"amount": 1, "log": ["b"]})
    assert told(pregel("state", target, "--thread", "t", "--json"))["status"] == "done"


def test_a_pause_of_one_process_is_answered_in_a_second() -> None:
    first = process("run", "flow.py:graph", "--input", '{"amount": 1}', "--thread", "t", "--json")
    assert first.returncode == 3, first.stderr
    assert "a node prints" in first.stderr
    [question] = json.loads(first.stdout)["interrupts"]
    assert (question["id"], question["value"]) == ("ask@1#0", "a?")
    second = process("resume", "flow.py:graph", "--thread", "t", "--answer", '"yes"', "--json")
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["values"]["log"] == ["a yes", "b"]


def test_a_pause_shows_each_question_with_the_command_that_answers_it() -> None:
    result = start("flow.py:graph", 2)
    assert result.exit_code == 3
    for text in ("a?", "b?", "pregel resume flow.py:graph --thread t --id 'other@1#0' --answer JSON"):
        assert text in result.stdout


def test_answers_go_to_the_questions_that_their_ids_name() -> None:
    start("flow.py:graph", 2)
    resume = ("resume", "flow.py:graph", "--thread", "t", "--json")
    left = told(pregel(*resume, "--id", "other@1#0", "--answer", '{"x": null}'), 3)
    assert [question["id"] for question in left["interrupts"]] == ["ask@1#0"]
    assert told(pregel(*resume, "--id", "ask@1#0", "--answer", "0"))["values"]["log"] == ["a 0", "b {'x': None}"]
    start("flow.py:graph", 2)
    ids = [question["id"] for question in told(pregel(*resume), 3)["interrupts"]]
    both = told(pregel(*resume, "--id", ids[1], "--answer", "2", "--id", ids[0], "--answer", "1"))
    assert both["values"]["log"][-2:] == ["a 1", "b 2"]


def test_input_comes_from_a_file_or_from_stdin(folder: Path) -> None:
    (folder / "in.json").write_text('{"amount": 1}', encoding="utf-8")
    run = ("run", "flow.py:plain", "--thread", "t", "--db", "mine.db", "--json", "--input")
    assert told(pregel(*run, "@in.json"))["values"]["amount"] == 1
    assert told(pregel(*run, "-", stdin='{"amount": 0}'))["values"]["amount"] == 0
    assert (folder / "mine.db").exists()
    assert not (folder / "runs.db").exists()


def test_a_failure_says_where_and_ends_with_4() -> None:
    failed = start("flow.py:plain", -1, "--json")
    assert told(failed, 4)["error"]["message"] == "less than nothing"
    assert "pregel: ValueError: less than nothing\n  in node 'other'" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert "Traceback" in start("flow.py:plain", -1, "--traceback").stderr


def test_history_lists_the_newest_first() -> None:
    start("flow.py:plain", 1)
    found = told(pregel("history", "flow.py:plain", "--thread", "t", "--json"))
    assert [each["status"] for each in found] == ["done", "running"]
    lines = pregel("history", "flow.py:plain", "--thread", "t", "--limit", "1").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [found[0]["checkpoint"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run flow.py:graph --thread t --input {amount", "is not JSON"),
        ("run flow.py:graph --thread t --input [1]", "an input is a JSON object"),
        ("run flow.py:graph --thread t --input @none.json", "cannot be read"),
        ('run flow.py:graph --thread t --input {"amont":1}', "amont"),
        ("run flow.py:graph --thread t --db none/x.db --input {}", "there is no folder 'none'"),
        ("run flow.py --thread t --input {}", "names no graph"),
        ("run none.py:graph --thread t --input {}", "there is no file 'none.py'"),
        ("run nowhere:graph --thread t --input {}", "there is no module 'nowhere'"),
        ("run flow.py:grph --thread t --input {}", "graphs there: graph, plain, compiled"),
        ("run flow.py:number --thread t --input {}", "is no graph but int"),
        ("run broken.py:graph --thread t --input {}", "SyntaxError"),
        ("run ends.py:graph --thread t --input {}", "SystemExit"),
        ("state flow.py:graph --thread none", "nothing is stored for thread 'none'"),
        ("state flow.py:graph --thread t --checkpoint 99", "no checkpoint"),
        ("history flow.py:graph --thread t --db none.db", "there is no database 'none.db'"),
        ("resume flow.py:graph --thread none --answer 1", "nothing is stored"),
        ("resume flow.py:graph --thread t --answer 1", "each needs the other"),
        ("resume flow.py:graph --thread t --answer 1 --id x@1#0", "x@1#0: no such question"),
        ("resume flow.py:plain --thread done --answer 1", "no question is pending"),
        ("run flow.py:graph", "Missing option"),
    ],
)
def test_what_cannot_be_carried_out_is_said_and_ends_with_2(folder: Path, words: str, message: str) -> None:
    (folder / "broken.py").write_text("def (", encoding="utf-8")
    (folder / "ends.py").write_text("raise SystemExit(0)", encoding="utf-8")
    start("flow.py:graph", 2)
    pregel("run", "flow.py:plain", "--input", '{"amount": 1}', "--thread", "done")
    refused = pregel(*words.split(" "))
    assert refused.exit_code == 2, refused.output
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr


def test_without_its_extra_the_command_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; import pregel.cli; pregel.cli.main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "pip install 'pregel[cli]'" in done.stderr


def test_what_json_cannot_say_is_readable() -> None:
    value = {1: float("nan"), "path": Path("a"), "set": {2, 1}, "bytes": b"x", "error": ValueError("no")}
    shown = {"1": "nan", "path": "a", "set": [1, 2], "bytes": "b'x'", "error": {"type": "ValueError", "message": "no"}}
    assert plain(value) == shown
