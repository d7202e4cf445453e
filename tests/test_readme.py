"""The README is true: its programs run and print what it shows."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.readme import Block, UntrueError, main, run_section, sections

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SECTIONS = sections(README.read_text(encoding="utf-8")) if README.exists() else []


@pytest.fixture(autouse=True)
def checkout_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the programs import a checkout that is not installed, as `pythonpath` does for the tests."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_the_readme_has_programs_with_output() -> None:
    shown = [block for section in SECTIONS for block in section if block.output is not None]
    assert shown, "README.md is missing or shows no program with its output"


@pytest.mark.parametrize("section", SECTIONS, ids=[section[0].section for section in SECTIONS])
def test_the_readme_is_true(section: list[Block], tmp_path: Path) -> None:
    run_section(section, tmp_path)


PAGE = """\
# Title

```python
print("# not a heading")
```

```text
# not a heading
```

## Files

```python file=hello.py
def greet(name):
    return f"hello {name}"
```

Prose between.

```python
from hello import greet

print(greet("you"))
```
```text
hello you
```

```console run
$ python -c 'import hello; print(hello.greet("shell"))'
hello shell
$ cd .. && false
$ echo "code $?" \\
>   twice
code 1 twice
```

```python no-run
raise SystemExit("compiled only")
```

```console
$ make test
```

```text free
free
```

## Another folder

```python
import importlib.util

assert importlib.util.find_spec("hello") is None
```
"""


@pytest.fixture
def check(tmp_path: Path) -> Callable[[str], None]:
    """Run a whole page."""

    def run(page: str) -> None:
        for number, section in enumerate(sections(page)):
            folder = tmp_path / str(number)
            folder.mkdir()
            run_section(section, folder)

    return run


def test_a_true_page_passes(check: Callable[[str], None]) -> None:
    assert [len(section) for section in sections(PAGE)] == [1, 4, 1]
    check(PAGE)


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", r"line 1: the page shows\n2\nbut the output is\n1"),
        ("```python file=a.py\nprint(1)\n```\n```text\n2\n```\n", "line 1: the page shows"),
        (
            "one\n\n```python\nraise ValueError('planted')\n```\n",
            r"line 3: the program failed\n(?s:.*)ValueError: planted",
        ),
        ("```python\nimport hello\n```\n## Files\n```python file=hello.py\n```\n", "No module named 'hello'"),
        ("```python no-run\nprint(\n```\n", "line 1: '\\(' was never closed"),
        ("```python norun\nprint(1)\n```\n", "line 1: 'python norun' is no kind of block"),
        ("```python\nprint(1)\n```\nIt prints:\n```text\n1\n```\n", "line 5: no program right above prints this"),
        ("```console run\n$ echo 1\n2\n```\n", r"line 1: the page shows\n2\nbut the output is\n1"),
        ("```console run\n$ echo 1\n1\n$ nothing-by-this-name\n```\n", "nothing-by-this-name: command not found"),
        ("```console run\n$ exit 3\n$ echo 1\n1\n```\n", "line 1: the commands ended early"),
        ("```console run\necho 1\n```\n", "line 1: a console block begins with"),
        ("```python\nprint(1)\n", "not closed"),
    ],
)
def test_what_is_not_true_is_reported(page: str, fault: str, check: Callable[[str], None]) -> None:
    with pytest.raises(UntrueError, match=fault):
        check(page)


def test_the_program_runs_the_first_block_in_the_readers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nimport mine\nprint(mine.ONE)\n```\n```text\n1\n```\n" + PAGE, encoding="utf-8")
    (tmp_path / "mine.py").write_text("ONE = 1\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["readme.py", str(page), "--first", "--folder", str(tmp_path)])
    assert main() == 0
    monkeypatch.setattr(sys, "argv", ["readme.py", str(page)])
    assert main() == 1
    holds, fails = re.split(r"(?<=hold)\n", capsys.readouterr().out)
    assert holds == f"{page}: 1 blocks hold"
    assert "No module named 'mine'" in fails
