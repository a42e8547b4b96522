# The two commands of the README. Each sets up its own environment in .venv first.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
TEXT ?= four eight one five
OUT ?= digits.wav

.PHONY: speak test check

speak: .venv/installed
	$(BIN)/voxradix speak "$(TEXT)" -o "$(OUT)"

test: check
	$(BIN)/pytest -n 2

check: .venv/developing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet --editable .
	touch $@

.venv/developing: .venv/installed
	$(BIN)/pip install --quiet --editable ".[dev]"
	$(BIN)/pip install --quiet --no-deps dashscope==2.0.2  # for the vocabulary that the released tokenizer has
	touch $@
