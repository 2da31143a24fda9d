# Everything a clone needs. `make help` lists the targets.

PYTHON ?= python3
# What `make test` runs, on how many processes, and any further words for pytest.
TESTS ?= tests
JOBS ?= auto
ARGS ?=
# How many scripts `make proof-otp` makes, and the seed to begin with (none: a new one).
COUNT ?= 100000
SEED ?=
# How long the long forms go on (none: what each is good for).
MINUTES ?=
# How often `make torture` kills.
KILLS ?= 200
# program=package: what the tests or benchmarks need and only Debian's packages give.
SERVERS = erl=erlang-base rabbitmq-server=rabbitmq-server openssl=openssl pg_ctlcluster=postgresql pgbouncer=pgbouncer
# Where Debian keeps servers, and a user's PATH may not look.
SBIN ?= :/usr/sbin

# Two installs into one .venv must not meet.
.NOTPARALLEL:
.DEFAULT_GOAL := help
SHELL = /bin/sh
export PYTHONUTF8 = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1
VENV = .venv
IN_VENV = $(VENV)/bin/python
# For what needs no package: the one of .venv where there is one.
ANY_PYTHON = $(or $(wildcard $(IN_VENV)),$(PYTHON))
# Refuse an interpreter that is too old: $(call new_enough,python3)
new_enough = $(1) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
    echo "Raptor needs Python 3.11 or newer, and $(1) is $$($(1) --version 2>&1). Name another: make PYTHON=python3.12" >&2; exit 1; }

.PHONY: run
run: $(VENV)/.run ## Install into .venv and run examples/first_project: four services, until Ctrl-C
	@cd examples/first_project && exec ../../$(VENV)/bin/raptor start main --interval 5s

.PHONY: test
test: $(VENV)/.test ## Install the test extra and run every test (TESTS=, JOBS=, ARGS=)
	@$(IN_VENV) -m pytest -n $(JOBS) --dist worksteal $(TESTS) $(ARGS)

.PHONY: check
check: $(VENV)/.check links ## Lint, format, types (mypy and pyright) and the layers of imports
	$(IN_VENV) -m ruff check
	$(IN_VENV) -m ruff format --check
	$(IN_VENV) -m mypy --strict -p raptor
	$(IN_VENV) -m pyright
	$(VENV)/bin/lint-imports --no-logo --no-cache

.PHONY: bench
bench: $(VENV)/.bench ## Measure, as ratios to known floors in one run
	@$(IN_VENV) benchmarks/run.py $(ARGS)

.PHONY: spec
spec: ## Say which lines of docs/spec are proven, and which are not
	@$(call new_enough,$(ANY_PYTHON))
	@$(ANY_PYTHON) -m tests.spec $(ARGS)

.PHONY: servers
servers: ## Install what only Debian's packages give (Erlang, to compare with; RabbitMQ; PostgreSQL)
	@missing=; \
	for pair in $(SERVERS); do \
	    PATH="$$PATH$(SBIN)" command -v "$${pair%%=*}" >/dev/null 2>&1 || missing="$$missing $${pair#*=}"; \
	done; \
	if [ -z "$$missing" ]; then echo "servers: all there"; exit 0; fi; \
	if ! command -v apt-get >/dev/null 2>&1; then \
	    echo "servers: missing:$$missing. There is no apt-get here: install what your system calls these, then try again." >&2; exit 1; \
	fi; \
	as_root=; \
	if [ "$$(id -u)" != 0 ]; then \
	    command -v sudo >/dev/null 2>&1 || { echo "servers: missing:$$missing. Neither root nor sudo: ask an administrator to run apt-get install$$missing" >&2; exit 1; }; \
	    as_root=sudo; \
	fi; \
	echo "servers: installing$$missing"; \
	$$as_root apt-get update -qq && \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing

.PHONY: proof-otp
proof-otp: $(VENV)/.test servers ## Compare supervisors with a real Erlang/OTP on new random scripts (COUNT=, SEED=)
	@$(IN_VENV) -m tests.otp.proof --count $(COUNT) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: torture
torture: $(VENV)/.test ## Kill nodes in mid-cycle and among their tasks, and PostgreSQL, again and again (KILLS=, MINUTES=, SEED=)
	@RAPTOR_KILLS=$(KILLS) $(IN_VENV) -m pytest -n $(JOBS) --dist worksteal \
	    tests/system/test_kill_cycle.py tests/system/test_kill_queue.py \
	    tests/system/test_kill_nodes.py tests/system/test_kill_owner.py $(ARGS)
	@for store in sqlite postgres; do \
	    $(IN_VENV) -m tests.torture --store $$store --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED)) || exit 1; \
	done

.PHONY: fuzz
fuzz: $(VENV)/.fuzz ## Give damaged and random inputs to whatever reads (MINUTES=, SEED=)
	@$(IN_VENV) -m tests.fuzz --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: proof
proof: $(VENV)/.test $(VENV)/.fuzz servers ## Every part of the proof for its share of the time, added to docs/reliability.md (MINUTES=, SEED=)
	@$(IN_VENV) -m tests.proof --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: simulate
simulate: $(VENV)/.test ## Simulate nodes for months in minutes, with faults of all kinds (MINUTES=, SEED=)
	@$(IN_VENV) -m tests.simulation --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) $(ARGS)

.PHONY: mutate
mutate: $(VENV)/.test ## Break the code on purpose, place by place, and see which test notices (MINUTES=, SEED=)
	@$(IN_VENV) -m tests.mutation --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: clean
clean: ## Remove .venv, caches and whatever was built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -path ./.git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

.PHONY: help
help: ## List the targets
	@echo "Raptor needs Python 3.11 or newer, make and gcc. PYTHON=$(PYTHON)"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s  %s\n", $$1, $$2 }' Makefile

# An archive of the sources has no links; type checkers and import-linter walk them.
.PHONY: links
links:
	@for name in cli state; do [ -e raptor/$$name ] || ln -s ../$$name raptor/$$name; done

# A stamp is written last, so that what was interrupted is done again.
$(VENV)/.made:
	@$(call new_enough,$(PYTHON))
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV) || { \
	    echo "$(PYTHON) cannot create a virtual environment. On Debian: apt-get install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.run: setup.cfg pyproject.toml $(VENV)/.made
	@echo "installing raptor into $(VENV)"
	@$(IN_VENV) -m pip install -qq -e .
	@touch $@

$(VENV)/.test $(VENV)/.fuzz $(VENV)/.check $(VENV)/.bench: $(VENV)/.%: setup.cfg pyproject.toml $(VENV)/.made
	@echo "installing raptor[$*] into $(VENV)"
	@$(IN_VENV) -m pip install -qq -e '.[$*]'
	@touch $@
