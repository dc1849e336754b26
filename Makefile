# Every target sets up what it needs in .venv; the second call is quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
DOCS_STAMP := $(VENV)/.set-up-docs
BENCH_STAMP := $(VENV)/.set-up-bench
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Time of `make fuzz` in seconds, and its seed (a fresh one if empty).
SECONDS ?= 60
SEED ?=

.PHONY: help setup run test test-slow fuzz check format bench docs clean

help:
	@echo "make setup      install samba_rl and its tools into $(VENV)"
	@echo "make run        learn Safe Pendulum with SAMBA into runs/, show the figures (minutes)"
	@echo "make test       run the tests (test-slow: the long ones)"
	@echo "make fuzz       try random commands, settings and data for a minute (SECONDS=600 SEED=1)"
	@echo "make check      formatting, lint, types, import layers (format: mend the formatting)"
	@echo "make bench      measure speed beside peers"
	@echo "make docs       run the tutorials and build the documentation into docs/_build/html"
	@echo "make clean      remove $(VENV) and everything built"

setup: $(STAMP)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 10) else f"samba_rl needs Python 3.10 or newer; {sys.executable} is {v.major}.{v.minor}. Name another: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Setting up $(VENV) (a minute or two the first time) ..."
	@$(PIP) --editable '.[all,dev]'
	@touch $@

$(BENCH_STAMP): $(STAMP)
	@$(PIP) --editable '.[all,dev,peers]'
	@touch $@

$(DOCS_STAMP): $(STAMP)
	@$(PIP) --editable '.[all,dev,docs]'
	@touch $@

run: $(STAMP)
	@# 4 means that the policy does not keep its limit, which the last lines say.
	$(BIN)/samba-rl train safe-pendulum || test $$? -eq 4

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadfile

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadfile -m slow

fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BENCH_STAMP)
	$(BIN)/python benchmarks/systems.py
	$(BIN)/python benchmarks/gp.py
	$(BIN)/python benchmarks/train.py
	$(BIN)/python benchmarks/model_free.py speed
	$(BIN)/python benchmarks/planet.py
	$(BIN)/python benchmarks/durability.py

docs: $(DOCS_STAMP)
	@echo "Building (minutes: the tutorials run) ..."
	$(BIN)/python -m sphinx --quiet --fail-on-warning -d docs/_build/doctrees docs docs/_build/html
	$(BIN)/python docs/links.py docs/_build/html
	@echo "open docs/_build/html/index.html"

clean:
	rm -rf $(VENV) docs/_build build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
