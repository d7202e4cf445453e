"""The command line: graphs run, answered and looked at from a shell.

It uses the package as any program does, through `from pregel import ...`; nothing of the package imports it.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command `pregel`; without its extra say what to install."""
    try:
        from .commands import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich", "click"):
            raise
        sys.stderr.write(f"pregel: the command line needs {error.name}: pip install 'pregel[cli]'\n")
        sys.exit(2)  # usage, as in commands.py
    app(prog_name="pregel")
