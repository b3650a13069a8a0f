# Every target sets up what it needs: a virtual environment in .venv, the package managers of
# `make test-all` in .clients, and nothing outside them except Debian's Chromium for the browser tests
# and its PostgreSQL for the benchmarks, where there is none and apt may install it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SIZE ?= 2m
# Package managers that tests install with.
export CLIENTS ?= $(CURDIR)/.clients
# A file's tests stay together, because they may share a fixture; the longest files come first (see
# tests/conftest.py), so that no worker ends long after the others. One worker more than there are
# cores, because tests of processes wait for them now and then.
PARALLEL := --numprocesses $(shell expr $$(nproc) + 1) --dist loadfile --no-loadscope-reorder

.PHONY: demo serve test test-all proxy-live guards check format bench clean help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

demo: $(VENV)/.installed ## make the demo organisation (once) and serve it (PORT=8080)
	$(if $(PORT),COUNTERSIGN_PORT=$(PORT) )$(BIN)/countersign demo

serve: $(VENV)/.installed ## serve the default data dir, with a process for each core
	$(BIN)/countersign serve --workers $$(nproc)

test: $(VENV)/.installed-dev ## what CI runs
	@sh tests/browser/install-chromium.sh
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest $(PARALLEL)

test-all: $(VENV)/.installed-dev ## every test, with as many tries as each can make use of
	@sh tests/browser/install-chromium.sh
	-@PYTHON=$(BIN)/python sh tests/clients/install.sh $(CLIENTS)
	TESTS=all $(BIN)/pytest $(PARALLEL)

proxy-live: $(VENV)/.installed-dev ## install through the proxy from the registries that this machine has configured
	-@PYTHON=$(BIN)/python sh tests/clients/install.sh $(CLIENTS)
	$(BIN)/pytest --numprocesses 0 tests/clients/live.py

guards: $(VENV)/.installed-dev ## drop each guard and want its test to fail (SINCE=main: what changed)
	TESTS=all SINCE=$(SINCE) $(BIN)/pytest -q --numprocesses $(shell nproc) tests/test_guards.py

check: $(VENV)/.installed-dev ## quick enough to run before every commit
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q $(PARALLEL) -m "not slow"

format: $(VENV)/.installed-dev ## format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed-bench ## compare with other engines (SIZE=2m, 20m, 100m), then try every claim
	@sh benchmarks/setup_postgres.sh
	-@PYTHON=$(BIN)/python sh benchmarks/setup_proxies.sh
	$(BIN)/python -m benchmarks.compare --size $(SIZE)
	@for script in $(notdir $(basename $(wildcard benchmarks/bench_*.py))); do \
		$(BIN)/python -m benchmarks.$$script || exit 1; done
	$(BIN)/python -m benchmarks.report

clean: ## remove the virtual environment and what tools leave behind; data stays
	rm -rf $(VENV) .clients .peers .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# chdb-core works without the pandas it asks for; and with pandas there, pyarrow would use it.
$(VENV)/.installed-bench: $(VENV)/.installed-dev
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps chdb-core
	@touch $@
