# `make` lists the targets. Everything installs into .venv from hash-pinned requirements; nothing else is touched.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input

.PHONY: help demo up test test-unit check format eval bench chaos lock docs clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Cairn needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements/runtime.txt requirements/build.txt pyproject.toml | $(BIN)/python
	$(PIP) --require-hashes -r requirements/runtime.txt -r requirements/build.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

demo: $(VENV)/.runtime  ## set up and run the main job: sample documents in, five questions answered
	$(BIN)/cairn demo

up: $(VENV)/.runtime  ## start Redis and all six services on this machine; Ctrl-C stops them
	$(BIN)/cairn up

test: $(VENV)/.dev  ## set up and run every test but the chaos suite
	$(BIN)/python -m pytest -n 2 -m "not chaos"

test-unit: $(VENV)/.dev  ## the pure tests only, in seconds
	$(BIN)/python -m pytest -n 2 tests/unit

check: $(VENV)/.dev  ## lint, format and types, strictly
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy

format: $(VENV)/.dev  ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

eval: $(VENV)/.dev  ## measure search on the sample set, against its gate
	$(BIN)/cairn eval samples/eval --gate samples/eval/gate.toml

bench: $(VENV)/.dev  ## the bus against bare redis-py, the grader's fan-out, ingestion and search
	$(BIN)/python -m bench.bus
	$(BIN)/python -m bench.fanout
	$(BIN)/python -m bench.ingest
	$(BIN)/python -m bench.search

chaos: $(VENV)/.dev  ## kill workers and Redis while jobs flow; every job must end exactly once
	$(BIN)/python -m pytest -m chaos tests/chaos

docs: $(VENV)/.dev  ## regenerate the message contract in docs/contract
	$(BIN)/python -m shared.runtime.contract docs/contract

lock: $(VENV)/.dev  ## pin the requirements again, with hashes
	$(BIN)/python -m uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q pyproject.toml -o requirements/runtime.txt
	$(BIN)/python -m uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q --group build -o requirements/build.txt
	$(BIN)/python -m uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q pyproject.toml --all-extras --group dev -c requirements/runtime.txt -o requirements/dev.txt

clean:  ## remove the virtual environment and the embedded data
	rm -rf $(VENV) .cairn
