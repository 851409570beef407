# Everything runs inside the clone's own .venv, which the first command creates: nothing to set up by hand.

PYTHON ?= python3
WORKERS ?= 2
SEED ?= 0
VENV := .venv
BIN := $(VENV)/bin
# The stamps carry the clone's place in their name, so an environment that was copied or moved along with it is made anew.
PLACE := $(shell pwd -P | cksum | cut -d' ' -f1)
CORE := $(VENV)/.core-$(PLACE)
DEV := $(VENV)/.dev-$(PLACE)
DOCS := $(VENV)/.docs-$(PLACE)
BENCHMARKS := startup run

# One thread per process: the networks are small, and the tests already run side by side.
export OMP_NUM_THREADS = 1
# Packages of other installations must not shine through into this one.
unexport PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
ifndef PARALLEL
.NOTPARALLEL:
endif
.PHONY: help install install-core train test test-alone test-slow check format lint type sizes bench bench-scores docs clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

install: $(DEV) ## create .venv with everything: tests, JAX, plots, videos (other commands install what they need)

install-core: $(CORE) ## create .venv with what a first run needs

$(CORE): pyproject.toml constraints.txt tools/install.sh
	@tools/install.sh "$(PYTHON)" "$(VENV)"
	@touch "$@"

# A clone that was interrupted here is made anew as a whole, its core included: hence the first stamp.
$(DEV): $(CORE)
	@tools/install.sh "$(PYTHON)" "$(VENV)" dev
	@touch "$(CORE)" "$@"

$(DOCS): $(CORE)
	@tools/install.sh "$(PYTHON)" "$(VENV)" docs
	@touch "$(CORE)" "$@"

train: $(CORE) ## train PPO on CartPole-v1 until it is solved
	$(BIN)/rl train ppo/cartpole --seed $(SEED) --stop-at-return 475
	@echo "rl is in $(BIN): after 'source $(BIN)/activate' try 'rl eval latest', 'rl presets' and 'rl --help'"
	@test -e "$(DEV)" || echo "'make install' adds videos, plots, JAX and what the tests need"

# The types are checked beside the tests that run alone: both need one core.
test: lint sizes ## lint, types, size hints and every fast test
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target PARALLEL=1 type test-alone
	$(BIN)/pytest -q -m "not slow and not cluster and not browser" -n $(WORKERS) --dist worksteal

test-alone: $(DEV) ## the fast tests that need a machine to themselves: a Ray cluster, a browser
	$(BIN)/pytest -q -m "cluster and not slow" -p no:xdist tests/distributed
	$(BIN)/pytest -q -m "browser and not slow" -p no:xdist tests/dashboard

test-slow: $(DEV) ## the long tests: learning to published scores, faults
	$(BIN)/pytest -q -m "slow and not cluster" -n $(WORKERS) --dist worksteal --timeout 3600
	$(BIN)/pytest -q -m "slow and cluster" tests/distributed --timeout 3600

check: test ## all of `make test`, and that the installed versions fit together
	$(BIN)/python -m pip check

format: $(DEV) ## rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint: $(DEV) ## ruff: rules and format, changing nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(DEV) ## mypy, strict
	$(BIN)/mypy

sizes: $(DEV) ## list the files and functions that have grown large
	@$(BIN)/python tools/size_hints.py

bench: $(DEV) ## measure speed and memory beside the peers, into docs/benchmarks.md (over an hour; QUICK=1: minutes, writes nothing)
	@for name in $(BENCHMARKS); do \
		echo "== benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py $(if $(QUICK),--quick) || exit 1; done

# All but the first two keep a row per finished run and train what has none.
bench-scores: $(DEV) ## train every preset with its seeds, the peers beside them, and write docs/scores.md (days; goes on where it stopped)
	$(BIN)/python benchmarks/scores.py
	$(BIN)/python benchmarks/scores.py --backend jax
	$(BIN)/python benchmarks/beside_sb3.py
	$(BIN)/python benchmarks/world_models.py
	$(BIN)/python benchmarks/offline_scores.py
	$(BIN)/python benchmarks/team_scores.py --presets ippo/simple_spread,mappo/simple_spread --backend jax
	$(BIN)/python benchmarks/team_scores.py

docs: $(DOCS) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

clean: ## remove caches and built files; keeps .venv and runs
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .coverage htmlcov
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
