# The commands of a checkout. They need Python 3.11 or newer, pip and make; everything else goes into .venv.
#
#   make demo     run the example: a review that pauses for a person and is finished by a second process
#   make test     lint, types and tests
#   make bench    the benchmarks
#   make clean    remove all that these made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# A stamp is newer than what it was made from, so nothing is installed twice. The version belongs to it because an
# installed package keeps the one it was installed with.
INSTALLED_FROM := pyproject.toml pregel/version.py

.PHONY: demo test bench clean

demo: $(VENV)/.installed-cli
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

test: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -n auto --dist worksteal

bench: $(VENV)/.installed-dev
	$(BIN)/pytest benchmarks --benchmark-only

clean:
	rm -rf $(VENV) build dist .benchmarks .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Editable for both, so that .venv never runs an older copy of what is being edited.
$(VENV)/.installed-%: $(INSTALLED_FROM) | $(VENV)/.made
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

# Some systems ship venv without the pip that it copies in; there pip, which is asked for above, fills the empty one.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'pregel needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || \
	    { $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }
	@touch $@
