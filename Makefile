# One command each. Everything runs from .venv, which `make setup` creates and keeps up to date.

VENV   := .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Nothing may reach for a model hub. Some virtual machines announce matrix instructions (AMX) and then
# fault on them, in any bfloat16 product: tests do without.
OFFLINE  := HF_HUB_OFFLINE=1 ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16
# Two test processes share two cores: one thread each. What they start is compiled once.
TEST_ENV := $(OFFLINE) OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false PYTHONDONTWRITEBYTECODE=

.DEFAULT_GOAL := help
.PHONY: help setup browser database demo test test-all check lint types layers slow forgeries bench docs clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

setup: $(STAMP) ## create .venv with all extras

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all]'
	touch $(STAMP)

# Only tests of the report page use it, and they say so when it is missing: never an error.
browser: ## install chromium for the report page's tests (Debian, as root)
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	  && { apt-get install -y -q chromium || { apt-get update -q && apt-get install -y -q chromium; }; } \
	  >/dev/null 2>&1; } || echo "no chromium, and it cannot be installed here: its tests are skipped"

# The same for the authority's tests: they start servers of their own.
database: ## install PostgreSQL and Redis for the authority's tests (Debian, as root)
	@{ ls /usr/lib/postgresql/*/bin/initdb && command -v redis-server; } >/dev/null 2>&1 || { \
	  test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	  && { apt-get install -y -q postgresql redis-server \
	       || { apt-get update -q && apt-get install -y -q postgresql redis-server; }; } \
	  >/dev/null 2>&1; } || echo "no PostgreSQL or Redis, and they cannot be installed here: their tests are skipped"

demo: $(STAMP) ## watermark, attack and verify a real model (minutes); OUT=folder
	HF_HUB_OFFLINE=1 $(BIN)/nsmark demo $(if $(OUT),--out $(OUT))

# Each process has half of the tests and takes from the other in the end: what tests of a file share
# is then made in one of them only.
PYTEST := $(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal

test: $(STAMP) ## run the tests before a commit
	$(PYTEST) -m "not whole and not slow and not gpu" $(ARGS)

test-all: test ## run these, then all with servers, browsers, torchrun, benchmarks
	$(PYTEST) -m "whole and not gpu" $(ARGS)

slow: $(STAMP) ## run what takes longer still
	$(OFFLINE) $(BIN)/python -m pytest -m "slow and not gpu" $(ARGS)

forgeries: $(STAMP) ## verify ten thousand forged keys (minutes); none may be accepted
	NSMARK_FORGERIES=10000 $(PYTEST) tests/forgeries $(ARGS)

lint: $(STAMP) ## format and lint, without changing files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP) ## check types, strictly
	$(BIN)/mypy

layers: $(STAMP) ## check that imports go one way
	$(BIN)/lint-imports

check: lint types layers test-all ## everything CI runs

bench: $(STAMP) ## measure the null space against a full SVD
	$(BIN)/python benchmarks/null_space.py

docs: $(STAMP) ## write the reference pages from the program itself
	$(BIN)/python docs/generate.py

clean: ## remove caches (not .venv, not a demo's output)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
