# `make` lists the targets. Everything installs into .venv from hash-pinned requirements; nothing else is touched.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input

.PHONY: help demo up local test test-unit check audit format eval bench chaos lock docs clean

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

up:  ## start everything with Docker (compose.yaml) and wait until it is ready; without Docker the same as `make local`
	@deploy/up.sh

local: $(VENV)/.runtime  ## start Redis and all six services as processes here, without Docker; Ctrl-C stops them
	$(BIN)/cairn up

test: $(VENV)/.dev  ## set up and run every test but the slow suites: chaos, docker, monitoring
	$(BIN)/python -m pytest -n 2 -m "not chaos and not docker and not monitoring"

test-unit: $(VENV)/.dev  ## the pure tests only, in seconds
	$(BIN)/python -m pytest -n 2 tests/unit

check: $(VENV)/.dev  ## lint, format and types, strictly
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy

audit: $(VENV)/.dev  ## look for known vulnerabilities in what runs; needs the network, so it is no part of `make check`
	@$(BIN)/pip-audit --strict --require-hashes --disable-pip --progress-spinner off -r requirements/runtime.txt || \
	{ echo "audit: vulnerable, or not looked at; the lines above say which. Offline, nothing can be said."; exit 1; }

format: $(VENV)/.dev  ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

eval: $(VENV)/.dev  ## measure search on the sample set, against its gate
	$(BIN)/cairn eval samples/eval --gate samples/eval/gate.toml

bench: $(VENV)/.dev  ## the bus against bare redis-py, the grader's fan-out and scaling, ingestion and search
	$(BIN)/python -m bench.bus
	$(BIN)/python -m bench.fanout
	$(BIN)/python -m bench.scaling
	$(BIN)/python -m bench.ingest
	$(BIN)/python -m bench.search

chaos: $(VENV)/.dev  ## kill workers and Redis while jobs flow; every job must end exactly once
	$(BIN)/python -m pytest -m chaos tests/chaos

docs: $(VENV)/.dev  ## regenerate what is made from the code: message contract, Redis users, containers' settings, dashboards
	$(BIN)/python -m shared.runtime.contract docs/contract
	$(BIN)/python -m shared.runtime.acl deploy/redis/users.acl
	$(BIN)/python -m deploy.settings
	$(BIN)/python -m deploy.grafana.dashboards

lock: $(VENV)/.dev  ## pin the requirements again, with hashes
	$(BIN)/python -m uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q pyproject.toml --extra scaler -o requirements/runtime.txt
	$(BIN)/python -m uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q --group build -o requirements/build.txt
	$(BIN)/python -m uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q pyproject.toml --all-extras --group dev -c requirements/runtime.txt -o requirements/dev.txt

clean:  ## remove the virtual environment and the embedded data
	rm -rf $(VENV) .cairn
