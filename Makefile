# The same targets for people and for CI. `make help` lists them.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
ROOTS := shared services trainer tests

.PHONY: help install demo up test test-kill test-demo check bench docs lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

install: $(INSTALLED) ## Make .venv with everything that is needed (by uv)

$(INSTALLED): pyproject.toml requirements/dev.txt
	@test -x $(BIN)/python || python3 -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit("Lineside needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	@$(BIN)/python -m uv --version >/dev/null 2>&1 || $(BIN)/pip install --quiet uv
	$(BIN)/python -m uv pip install --python $(BIN)/python --quiet --require-hashes -r requirements/dev.txt
	$(BIN)/python -m uv pip install --python $(BIN)/python --quiet --no-deps --editable .
	@touch $@

demo: install ## A real run, a real fault, found and healed (under 3 minutes)
	$(BIN)/lineside demo

up: install ## Kafka and all services, without a run
	$(BIN)/lineside up

test: install ## All tests but the long ones (under 10 minutes on 2 cores)
	$(BIN)/pytest -m "not kill and not demo"

test-kill: install ## Long kill tests against a real Kafka
	$(BIN)/pytest -m kill

test-demo: install ## The demo in all its ways: no fault, observe, Ctrl-C, Kafka killed
	$(BIN)/pytest -m demo

check: install ## Format, lint, types, architecture
	$(BIN)/ruff format --check $(ROOTS)
	$(BIN)/ruff check $(ROOTS)
	$(BIN)/mypy shared services trainer
	$(BIN)/lint-imports

bench: install ## Every measured claim beside its bar
	$(BIN)/python -m tests.benchmarks

docs: install ## Pages that are generated from the code
	$(BIN)/python -m lineside.contracts.document > docs/contracts.md

lock: install ## Pin the newest versions that pyproject.toml allows
	$(BIN)/python -m uv pip compile --quiet --universal --all-extras --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --upgrade pyproject.toml -o requirements/dev.txt

clean: ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
