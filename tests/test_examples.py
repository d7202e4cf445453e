"""The examples do what they say: the review on a small tree with awkward files, the others word for word."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples/source_review.py"
APPROVAL = ROOT / "examples/tool_approval.py"
GATE = ROOT / "examples/risk_gate.py"
FILES = {
    "good.py": b'"""Fine."""\n',
    "bad.py": b"def (",
    "nul.py": b"x = 1\0",
    "coding.py": b"# coding: nonsense\n",
    "latin.py": b"x = '\xff'\n",
    "deep.py": b"(" * 5000 + b")" * 5000,
    "empty.py": b"",
    "smelly.py": b'"""S."""\ndef f(a=[], *, b={}):\n    try: pass\n    except: pass\n',
    ".git/hook.py": b"def (",
    "env/pyvenv.cfg": b"",
    "env/lib.py": b"def (",
    "__pycache__/x.py": b"def (",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "tree/again").symlink_to(".")
    (tmp_path / "tree/loop.py").symlink_to("loop.py")
    (tmp_path / "tree/copy.py").symlink_to("bad.py")
    os.mkfifo(tmp_path / "tree/pipe.py")
    return tmp_path / "tree"


def run(folder: Path, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment, input=stdin, capture_output=True, text=True, timeout=60)


def pregel(folder: Path, command: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return run(folder, "-m", "pregel.cli", command, f"{EXAMPLE}:graph", "--thread", "t", "--json", *words)


def test_every_file_that_does_not_parse_is_a_finding_and_no_file_is_read_twice(tree: Path, tmp_path: Path) -> None:
    paused = pregel(tmp_path, "run", "--input", '{"root": "tree", "report": "report.md"}')
    assert paused.returncode == 3, paused.stderr
    [question] = json.loads(paused.stdout)["interrupts"]
    found = question["value"]["findings"]
    broken = {line.split(" ")[1].split(":")[0] for line in found if "cannot be parsed" in line}
    assert broken == {"bad.py", "nul.py", "coding.py", "latin.py", "deep.py", "loop.py", "pipe.py"}
    assert sum("mutable default" in line for line in found) == sum("`except:`" in line for line in found) == 1
    asked = pregel(tmp_path, "resume", "--answer", '{"decision": "edit", "drop": [99]}')
    assert asked.returncode == 3, asked.stderr
    assert "is none of the answers" in json.loads(asked.stdout)["interrupts"][0]["value"]["question"]
    done = pregel(tmp_path, "resume", "--answer", '{"decision": "edit", "drop": [1]}')
    assert done.returncode == 0, done.stderr
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert report.startswith("# Source review")
    assert report.count("cannot be parsed") == len(broken) - 1


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_the_example_is_a_program_that_asks_at_the_terminal(tree: Path, tmp_path: Path, decision: str) -> None:
    done = run(tmp_path, str(EXAMPLE), "tree", stdin=f"what\n{decision}\n")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "source_review.md").exists() == (decision == "approve")


SHOWN = """\
clerk: the model speaks, after 0 messages
question clerk@1|tools@2#=approve.0.ac602a409fcf
  needs_approval: [{'id': '2', 'name': 'refund', 'arguments': {'order': 'A7', 'amount': 500}, \
'description': 'Pays money to the customer', 'question': 'Run refund?'}]
  automatic: [{'id': '1', 'name': 'look_up', 'arguments': {'order': 'A7'}}]
  refused: []
answer: yes
question clerk@1|tools@2#=approve.1.f3cc24ed2743
  needs_approval: [{'id': '2', 'name': 'refund', 'arguments': {'order': 'A7', 'amount': 500}, \
'description': 'Pays money to the customer', 'question': 'Run refund?'}]
  automatic: [{'id': '1', 'name': 'look_up', 'arguments': {'order': 'A7'}}]
  refused: ['an answer is a list of decisions, not str']
answer: [{'id': '2', 'name': 'refund', 'decision': 'edit', 'arguments': {'order': 'A7', 'amount': 120}}]
  look_up of A7 ran in clerk@1|tools@2, which sees 2 answers
  refund of 120 EUR for A7 ran
clerk: the model speaks, after 3 messages
writer: the model speaks, after 0 messages
  look_up of A7 ran in writer@6|tools@2, which sees 0 answers
  look_up of A8 ran in writer@6|tools@2, which sees 0 answers
writer: the model speaks, after 3 messages
The clerk: 120 EUR were refunded.
The writer: dear customer, about a lamp of 120 EUR that arrived broken, we are sorry.
"""


def test_the_second_agent_starts_fresh_after_the_first_was_answered(tmp_path: Path) -> None:
    """8.3, 14.1, 14.2: two agents in sequence; nothing runs before it is approved, the second sees no answer."""
    done = run(tmp_path, str(APPROVAL))
    assert done.returncode == 0, done.stderr
    assert done.stdout == SHOWN
    assert done.stderr == ""


PAYMENTS = """\
small: scored 9 | paused before execute, then execute
small: scored 9, paid 900 EUR
wrong alarm: scored 100 | paused after score, then score/edge
wrong alarm: scored 100 | paused before execute, then execute
wrong alarm: scored 100, paid 4000 EUR
real alarm: scored 100 | paused after score, then score/edge
real alarm: scored 100, rejected
"""


def test_a_correction_at_the_pause_changes_where_a_payment_goes(tmp_path: Path) -> None:
    """7.1, 7.3, 7.4: a pause that the node wants, one before the payment, an edge decided on the corrected state."""
    done = run(tmp_path, str(GATE))
    assert (done.returncode, done.stdout, done.stderr) == (0, PAYMENTS, "")
