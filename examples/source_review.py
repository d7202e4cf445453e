"""Review a source tree: one task per Python file, a person approves what was found, a Markdown report is written.

    pregel run examples/source_review.py:graph --input '{"root": "."}' --thread mine
    pregel resume examples/source_review.py:graph --thread mine --answer '{"decision": "approve"}'

or, in one process that asks at the terminal: python examples/source_review.py [DIR]
"""

import ast
import operator
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Annotated, TypedDict

from pregel import END, START, InMemorySaver, Send, StateGraph, interrupt


@dataclass(frozen=True, slots=True)
class Measure:
    """Something countable in a file: `kind` is a key of LIMITS."""

    kind: str
    name: str
    line: int
    size: int = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a person should look at; the higher the score, the sooner."""

    path: str
    line: int
    text: str
    score: float


LIMITS = {  # kind: (the largest size that is no finding, the score just above it, what to say)
    "broken": (0, 100.0, "cannot be parsed: {name}"),
    "bare except": (0, 8.0, "`except:` catches KeyboardInterrupt and SystemExit too"),
    "mutable default": (0, 8.0, "`{name}` shares a mutable default between its calls"),
    "nesting": (4, 4.0, "`{name}` nests {size} levels deep"),
    "length": (60, 3.0, "`{name}` is {size} lines long"),
    "parameters": (6, 2.0, "`{name}` takes {size} parameters"),
    "undocumented": (0, 1.0, "`{name}` is public and has no docstring"),
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)

# --- one file: a nested graph -------------------------------------------------------------------------------------


class OneFile(TypedDict, total=False):
    """The state of the review of one file. `findings` is shared with the whole review."""

    root: str
    path: str
    measures: list[Measure]
    findings: Annotated[list[Finding], operator.add]


_quiet = Lock()  # catch_warnings changes the whole process, and files are reviewed in parallel


def measure(state: OneFile) -> OneFile:
    """Parse a file and measure what is in it; a file that does not parse has one measure, which says why."""
    path = Path(state["root"], state["path"])
    try:
        if not path.is_file():  # a pipe would be read for ever
            raise OSError("it is no file that can be read")
        with _quiet, warnings.catch_warnings(action="ignore"):
            tree = ast.parse(path.read_bytes())  # bytes, since a file says its own encoding
        return {"measures": [*measures(tree)]}
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError) as error:
        reason = getattr(error, "msg", None) or getattr(error, "strerror", None) or error
        return {"measures": [Measure("broken", str(reason), getattr(error, "lineno", None) or 1)]}


def measures(tree: ast.Module) -> Iterator[Measure]:
    """Yield what is worth measuring in a module."""
    yield from undocumented("the module", tree)
    for each in ast.walk(tree):
        if isinstance(each, ast.ExceptHandler) and each.type is None:
            yield Measure("bare except", "", each.lineno)
        elif isinstance(each, FUNCTIONS):
            args = each.args
            yield Measure("length", each.name, each.lineno, (each.end_lineno or each.lineno) - each.lineno + 1)
            count = len([*args.posonlyargs, *args.args, *args.kwonlyargs])
            yield Measure("parameters", each.name, each.lineno, count)
            yield Measure("nesting", each.name, each.lineno, depth(each))
            if any(isinstance(value, ast.List | ast.Dict | ast.Set) for value in [*args.defaults, *args.kw_defaults]):
                yield Measure("mutable default", each.name, each.lineno)


def undocumented(name: str, node: ast.AST) -> Iterator[Measure]:
    """Yield what is public and has no docstring: a definition, and those in a module or class."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module)) and not name.startswith(("_", "test_")):
        if node.body and ast.get_docstring(node) is None:
            yield Measure("undocumented", name, getattr(node, "lineno", 1))
        for inner in node.body if isinstance(node, ast.ClassDef | ast.Module) else ():
            yield from undocumented(getattr(inner, "name", ""), inner)


def depth(function: ast.AST) -> int:
    """Count how deep the blocks of a function nest; an `elif` is no deeper than its `if`."""
    deepest, left = 0, [(function, 0)]
    while left:  # no recursion: generated code nests without end
        node, level = left.pop()
        deepest = max(deepest, level)
        for child in ast.iter_child_nodes(node):
            is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and [child] == node.orelse
            left.append((child, level + (isinstance(child, BLOCKS) and not is_elif)))
    return deepest


def judge(state: OneFile) -> OneFile:
    """Make findings of the measures that are above their limit."""
    findings = []
    path = "".join(char if char.isprintable() else repr(char)[1:-1] for char in state["path"])  # names hold any byte
    for found in state["measures"]:
        limit, score, text = LIMITS[found.kind]
        if found.size > limit:
            told = text.format(name=found.name, size=found.size)
            findings.append(Finding(path, found.line, told, score * found.size / (limit or 1)))
    return {"findings": findings}


# --- the whole tree -----------------------------------------------------------------------------------------------


class Review(TypedDict, total=False):
    """The state of a review: a root, where the report goes, how many findings it lists, and what comes of it."""

    root: str
    report: str
    most: int
    files: list[str]
    findings: Annotated[list[Finding], operator.add]
    ranked: list[Finding]
    decision: str


class Result(TypedDict, total=False):
    """What a review hands back."""

    decision: str
    report: str


def find_files(state: Review) -> Review:
    """List the Python files below the root."""
    root, report = Path(state.get("root", ".")).resolve(), Path(state.get("report", "source_review.md")).resolve()
    if not root.is_dir():
        raise NotADirectoryError(f"there is no folder {str(root)!r}")
    return {"root": str(root), "report": str(report), "files": sorted(python_files(str(root), ""))}


def python_files(root: str, folder: str) -> Iterator[str]:
    """Yield paths below the root. A link is not followed: what it leads to is reviewed where it lies."""
    try:
        entries = list(os.scandir(os.path.join(root, folder)))
    except OSError:
        yield folder  # which its review will find to be unreadable
        return
    if folder and any(entry.name in ("pyvenv.cfg", "CACHEDIR.TAG") for entry in entries):
        return
    for entry in entries:
        path = os.path.join(folder, entry.name)
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.startswith((".", "__pycache__", "node_modules")):
                yield from python_files(root, path)
        elif entry.name.endswith(".py") and not (entry.is_symlink() and os.path.exists(entry.path)):
            yield path


def fan_out(state: Review) -> list[Send] | str:
    """Send each file to a task of its own."""
    return [Send("review", {"root": state["root"], "path": path}) for path in state["files"]] or "rank"


def rank(state: Review) -> Review:
    """Keep the worst findings, the worst first."""
    worst = sorted(state.get("findings", []), key=lambda each: (-each.score, each.path, each.line))
    return {"ranked": worst[: state.get("most", 20)]}


def decide(state: Review) -> Review:
    """Ask a person what to do with the list, and again for as long as the answer says nothing that is understood."""
    ranked, problem = state["ranked"], ""
    while True:
        answer = interrupt(
            {
                "question": f"{problem}{len(state['files'])} files reviewed. Write a report of these findings?",
                "findings": [f"{n}. {each.path}:{each.line} {each.text}" for n, each in enumerate(ranked, 1)],
                "answers": [{"decision": "approve"}, {"decision": "reject"}, {"decision": "edit", "drop": [1]}],
            }
        )
        match answer:
            case {"decision": "approve" | "reject" as decision} | ("approve" | "reject" as decision):
                return {"decision": decision}
            case {"decision": "edit", "drop": list(drop)} if all(n in range(1, len(ranked) + 1) for n in drop):
                return {"decision": "edit", "ranked": [each for n, each in enumerate(ranked, 1) if n not in drop]}
        problem = f"{answer!r} is none of the answers. "


def write_report(state: Review) -> None:
    """Write what is left of the list as Markdown."""
    lines = [f"{n}. `{each.path}:{each.line}` {each.text}" for n, each in enumerate(state["ranked"], 1)]
    head = ["# Source review", "", f"{len(state['files'])} files, {len(state.get('findings', []))} findings.", ""]
    Path(state["report"]).write_text("\n".join([*head, *(lines or ["Nothing to report."]), ""]), encoding="utf-8")


one_file = StateGraph(OneFile).add_sequence([measure, judge]).add_edge(START, "measure").compile(name="one file")

graph = StateGraph(Review, output_schema=Result).add_node(find_files)
graph.add_node("review", one_file).add_node(rank).add_node(decide).add_node(write_report)
graph.add_edge(START, "find_files").add_conditional_edges("find_files", fan_out, ["review", "rank"])
graph.add_edge("review", "rank").add_edge("rank", "decide")
graph.add_conditional_edges("decide", lambda state: END if state["decision"] == "reject" else "write_report")


def main(root: str = ".") -> None:
    """Review a tree in this process and ask at the terminal."""
    program = graph.compile(InMemorySaver())
    result = program.invoke({"root": root}, thread_id="here")
    while asked := result.get("__interrupt__"):
        print(asked[0].value["question"], *asked[0].value["findings"], sep="\n")
        words = input("approve, reject, or the numbers to drop: ").replace(",", " ").split()
        drop = [int(word) for word in words if word.isdigit()]
        result = program.resume({"decision": "edit", "drop": drop} if drop else " ".join(words), thread_id="here")
    print(f"{result['decision']}: {result['report']}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
