# Every target sets up what it needs: a virtual environment in .venv, the package managers and other
# tools of `make test-all` in .clients, .engines, .openapi, .verifiers and .receivers, and nothing
# outside them except Debian's Chromium for the browser tests and its PostgreSQL 15 for tests and benchmarks, where
# there is none and apt may install it.
# What only `make test` needs is not installed for `make check`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SIZE ?= 2m
DIST ?= dist
# Package managers that tests install with.
export CLIENTS ?= $(CURDIR)/.clients
# Query engines that tests read the open table with: 3 GB.
export ENGINES ?= $(CURDIR)/.engines
# Validators and generators that tests read the OpenAPI document with.
export OPENAPI_TOOLS ?= $(CURDIR)/.openapi
# Verifiers of proofs that were not written here.
export VERIFIERS ?= $(CURDIR)/.verifiers
export RECEIVERS ?= $(CURDIR)/.receivers
# A file's tests stay together, because they may share a fixture; the longest files come first (see
# tests/conftest.py), so that no worker ends long after the others. One worker more than there are
# cores, because tests of processes wait for them now and then.
PARALLEL := --numprocesses $(shell expr $$(nproc) + 1) --dist loadfile --no-loadscope-reorder

# What `make test` runs on PostgreSQL, too: each way in which rows and changes get into the database and
# out of it. `make test-all` runs all tests of what uses a database.
PART := $(addprefix tests/service/, store/test_work.py store/test_transaction.py \
	audit/test_sealing.py audit/test_snapshots.py \
	audit/test_query_service.py audit/test_export_ahead.py audit/test_lease.py audit/test_ingest_items.py \
	audit/test_sql.py::test_stored_rows_and_those_of_the_journal_are_one_table \
	trust/bindings/test_race.py trust/bindings/test_audit_rows.py trust/bindings/test_revoke_repository.py \
	packages/policy/test_policy_cache.py packages/policy/test_exceptions.py packages/proxy/test_install_log.py packages/proxy/test_install_marks.py \
	trust/rejected/test_subjects.py orgs access/sign_in/test_setting_up.py packages/install_tokens/test_exchange.py)
WITH_DATABASE := tests/service tests/processes tests/stored tests/openapi tests/browser tests/docs tests/clients

# $(call pinned,FILES): what these files of requirements/ name, with their hashes. uv takes a fifth of pip's
# time and trusts the machine's certificates, as the service does; pip knows more settings of the machine.
exact = --quiet --no-deps --require-hashes $(addprefix -r requirements/,$(1))
pinned = $(BIN)/uv pip install --system-certs --python $(BIN)/python $(exact) || $(BIN)/pip install $(exact)

.PHONY: demo serve fleet test test-on-sqlite test-beside test-all proxy-live mutants goldens check format bench hashes sbom client clean help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

demo: $(VENV)/.installed ## make the demo organisation (once) and serve it (PORT=8080)
	$(if $(PORT),COUNTERSIGN_PORT=$(PORT) )$(BIN)/countersign demo

serve: $(VENV)/.installed ## serve the default data dir, with a process for each core
	$(BIN)/countersign serve --workers $$(nproc)

fleet: $(VENV)/.installed-dev ## three nodes on PostgreSQL and S3, with the demo organisation, on this machine
	@sh tests/install-postgres.sh
	@$(BIN)/python -m tests.fleet

test: $(VENV)/.installed-mcp ## what CI runs
	@sh tests/browser/install-chromium.sh
	@sh tests/install-postgres.sh
	@sh tests/install-programs.sh $(BIN)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory --jobs 2 test-on-sqlite test-beside

test-on-sqlite:
	$(BIN)/pytest $(PARALLEL)

# Types, and a part of the tests on PostgreSQL, while the other tests wait for processes and disks.
test-beside:
	$(BIN)/mypy
	DATABASE=postgresql $(BIN)/pytest --quiet $(PART)

test-all: $(VENV)/.installed-mcp ## every test, with as many tries as each can make use of, on both databases
	@sh tests/browser/install-chromium.sh
	@sh tests/install-postgres.sh
	@sh tests/install-programs.sh $(BIN)
	-@PYTHON=$(BIN)/python sh tests/clients/install.sh $(CLIENTS)
	-@PYTHON=$(BIN)/python sh tests/engines/install.sh $(ENGINES)
	-@sh tests/openapi/install.sh $(OPENAPI_TOOLS)
	-@sh tests/evidence/install.sh $(VERIFIERS)
	-@sh tests/receivers/install.sh $(RECEIVERS)
	TESTS=all $(BIN)/pytest $(PARALLEL)
	TESTS=all DATABASE=postgresql $(BIN)/pytest $(PARALLEL) $(WITH_DATABASE)

proxy-live: $(VENV)/.installed-dev ## install through the proxy from the registries that this machine has configured
	-@PYTHON=$(BIN)/python sh tests/clients/install.sh $(CLIENTS)
	$(BIN)/pytest --numprocesses 0 tests/clients/live.py

mutants: $(VENV)/.installed-dev ## make small wrong changes and want tests to fail (COUNT=100 SEED=1)
	$(BIN)/python -m tests.mutants $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) $(MODULES) $(if $(NAMES),--names $(NAMES))

goldens: $(VENV)/.installed-dev ## write down all answers (OUT=folder); UPDATE=1 rewrites the document and helps kept here
	$(BIN)/python -m tests.goldens $(if $(UPDATE),--update) $(if $(ONLY),--only '$(ONLY)') $(OUT)

check: $(VENV)/.installed-dev ## quick enough to run before every commit
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q $(PARALLEL) -m "not slow"

format: $(VENV)/.installed-dev ## format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed-bench ## compare with other engines (SIZE=2m, 20m, 100m), then try every claim
	@sh tests/install-postgres.sh
	-@PYTHON=$(BIN)/python sh benchmarks/setup_proxies.sh
	$(BIN)/python -m benchmarks.compare --size $(SIZE)
	@for script in $(notdir $(basename $(wildcard benchmarks/bench_*.py))); do \
		$(BIN)/python -m benchmarks.$$script || exit 1; done
	$(BIN)/python -m benchmarks.report

hashes: $(VENV)/.installed ## write requirements/ from pyproject.toml and constraints.txt
	sh requirements/compile.sh $(BIN)/uv

sbom: $(VENV)/.installed ## write sbom.json (CycloneDX); OSV=all.zip compares it with these records
	@sh requirements/sbom.sh $(BIN) sbom.json $(OSV)

client: $(VENV)/.installed ## build the wheel of the commands that work on a server (DIST=folder)
	@$(BIN)/python requirements/client.py $(DIST)

clean: ## remove the virtual environment and what tools leave behind; data stays
	rm -rf $(VENV) .clients .engines .openapi .verifiers .receivers .peers .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info

$(VENV)/.installed: pyproject.toml setup.py requirements/service.txt requirements/uv.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --disable-pip-version-check $(call exact,uv.txt)
	@echo 'installing Countersign and what it needs in $(VENV): 540 MB, a minute or two'
	@$(call pinned,service.txt)
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements/dev.txt
	@echo 'installing what tests need in $(VENV)'
	@$(call pinned,dev.txt)
	@touch $@

$(VENV)/.installed-mcp: $(VENV)/.installed-dev requirements/mcp.txt
	@$(call pinned,mcp.txt)
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed-dev requirements/bench.txt requirements/chdb.txt
	@echo 'installing what benchmarks need in $(VENV)'
	@$(call pinned,bench.txt chdb.txt)
	@touch $@
