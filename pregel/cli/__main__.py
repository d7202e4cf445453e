"""`python -m pregel.cli` is the command `pregel`."""

from . import main

main()
