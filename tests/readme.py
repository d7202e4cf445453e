"""Run the code blocks of a Markdown page as its reader would, and report where the page is not true.

The words after the opening fence say what a block is:

    python                   a program; a `text` block right below it shows its output and must be equal
    python file=approval.py  the same under this name, for later blocks to import; run only if its output is shown
    python no-run            only compiled
    console run              lines that begin with "$ " are run by bash ("> " continues one), the others are the output
    text free                a `text` block that shows nobody's output

Other blocks are left alone. The blocks below one `##` heading share a folder, in order; the next heading has a new one.

Usage: python readme.py PAGE [--first] [--folder FOLDER]
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

SECONDS = 120  # no program of a page takes so long unless it hangs
MARK = "\x04"  # ends the output of one command of a console block
BLOCK = re.compile(
    r"^(?P<fence>`{3,})[ \t]*(?P<words>[^`\n]*)\n(?P<text>.*?)^(?P=fence)[ \t]*$|^## (?P<heading>[^\n]+)$", re.M | re.S
)


class Block(NamedTuple):
    """A block that is checked. `output` is what the page shows of it, None if nothing."""

    line: int
    section: str
    kind: str
    file: str
    text: str
    output: str | None = None


class UntrueError(AssertionError):
    """The page says something that does not hold."""


def kind_of(line: int, words: list[str]) -> tuple[str, str]:
    """Read the words of a fence: kind of block and name of its file. A misspelt word must not switch a check off."""
    match words:
        case ["python"]:
            return "program", f"readme_line_{line}.py"
        case ["python", word] if word.startswith("file=") and Path(word[5:]).suffix == ".py":
            return "file", word[5:]
        case ["python", "no-run"]:
            return "no-run", ""
        case ["console", "run"]:
            return "console", ""
        case ["text"]:
            return "output", ""
        case ["python", *_] | ["console", _, *_]:
            raise UntrueError(f"line {line}: {' '.join(words)!r} is no kind of block")
    return "other", ""


def blocks(page: str) -> list[Block]:
    """Find the blocks to check, each with the output that the page shows."""
    found: list[Block] = []
    section, end = "", 0
    for match in BLOCK.finditer(page):
        between, end = page[end : match.start()], match.end()
        line = page.count("\n", 0, match.start()) + 1
        if "\n```" in "\n" + between:
            raise UntrueError(f"line {line}: a block above is not closed")
        if match["heading"]:
            section = match["heading"].strip()
            continue
        kind, file = kind_of(line, match["words"].split())
        if kind == "output":
            shows = found and not between.strip() and found[-1].kind in ("program", "file") and found[-1].output is None
            if not shows:
                raise UntrueError(f"line {line}: no program right above prints this; tag it `text free` if none should")
            found[-1] = found[-1]._replace(output=match["text"])
        else:
            found.append(Block(line, section, kind, file, match["text"]))
    if "\n```" in "\n" + page[end:]:
        raise UntrueError("the last block is not closed")
    return [block for block in found if block.kind != "other"]


def sections(page: str) -> list[list[Block]]:
    """Group the blocks that share a folder."""
    return [list(group) for _, group in groupby(blocks(page), lambda block: block.section)]


def compare(line: int, found: str, shown: str) -> None:
    """Raise unless both are equal but for blanks at the ends of lines, which editors remove."""
    found, shown = (re.sub(r"[ \t]+$", "", text, flags=re.M).strip("\n") for text in (found, shown))
    if found != shown:
        raise UntrueError(f"line {line}: the page shows\n{shown}\nbut the output is\n{found}")


def run_program(block: Block, folder: Path) -> None:
    """Run one program by its file, so that what it defines can be found again by name."""
    command = [sys.executable, block.file]
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
    )
    if done.returncode:
        raise UntrueError(f"line {block.line}: the program failed\n{done.stdout}{done.stderr}")
    if block.output is not None:
        compare(block.line, done.stdout, block.output)


def run_console(block: Block, folder: Path) -> None:
    """Run the commands in one bash, as in one terminal: what one sets is there for the next."""
    head, *parts = re.split(r"^\$ ((?:.*\n)(?:> .*\n)*)", block.text, flags=re.M)
    if head.strip() or not parts:
        raise UntrueError(f'line {block.line}: a console block begins with "$ " and a command')
    commands, outputs = [re.sub(r"^> ", "", part, flags=re.M) for part in parts[::2]], parts[1::2]
    script = "".join(f"{command}\ncode=$?; printf '{MARK}'; (exit $code)\n" for command in commands)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=os.environ | {"PATH": path, "COLUMNS": "120", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # a terminal shows both
        text=True,
        timeout=SECONDS,
    )
    found = done.stdout.split(MARK)
    if len(found) != len(outputs) + 1:
        raise UntrueError(f"line {block.line}: the commands ended early\n{done.stdout}")
    for output, shown in zip(found, outputs, strict=False):
        compare(block.line, output, shown)


def run_section(section: list[Block], folder: Path) -> None:
    """Run the blocks of one section in a folder, in order. Raises UntrueError at the first that does not hold."""
    for block in section:
        if block.kind == "console":
            run_console(block, folder)
            continue
        try:
            compile(block.text, f"line {block.line}", "exec")
        except SyntaxError as error:
            raise UntrueError(f"line {block.line}: {error}") from error
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        if block.kind == "program" or (block.kind == "file" and block.output is not None):
            run_program(block, folder)


def is_shown(block: Block) -> bool:
    """Whether a block is a program whose output the page shows."""
    return block.output is not None


def main() -> int:
    """Run a page with the interpreter that runs this."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--first", action="store_true", help="only the first program")
    parser.add_argument("--folder", type=Path, help="where to run it, instead of an empty folder")
    options = parser.parse_args()
    todo = sections(options.page.read_text(encoding="utf-8"))
    if options.first:
        section = next((section for section in todo if any(map(is_shown, section))), [])
        ends = next((index for index, block in enumerate(section) if is_shown(block)), 0)
        todo = [section[: ends + 1]] if section else []  # with the files above it, which it may import
    if not todo:
        print(f"{options.page} has no program")
        return 1
    for section in todo:
        with tempfile.TemporaryDirectory() as empty:
            try:
                run_section(section, options.folder or Path(empty))
            except UntrueError as fault:
                print(f"{options.page}, {fault}")
                return 1
    print(f"{options.page}: {sum(map(len, todo))} blocks hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
