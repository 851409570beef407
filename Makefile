# Everything runs inside the clone's own .venv, which the first command creates: nothing to set up by hand.

PYTHON ?= python3
WORKERS ?= 2
SEED ?= 0
VENV := .venv
BIN := $(VENV)/bin
# The stamps carry the clone's place in their name: an environment that was copied or moved along is not taken for this one's.
PLACE := $(shell pwd -P | cksum | cut -d' ' -f1)
INSTALLED := $(VENV)/.installed-$(PLACE)
DOCS_INSTALLED := $(VENV)/.installed-docs-$(PLACE)
BENCHMARKS := startup run

# One thread per process: the networks are small, and the tests already run side by side.
export OMP_NUM_THREADS = 1
# Packages of other installations must not shine through into this one.
unexport PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install train test test-slow check format lint type sizes bench bench-scores docs clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

install: $(INSTALLED) ## create .venv with the pinned dependencies (every other command does it by itself)

$(INSTALLED): pyproject.toml constraints.txt tools/install.sh
	@tools/install.sh "$(PYTHON)" "$(VENV)" dev
	@touch "$@"

$(DOCS_INSTALLED): $(INSTALLED)
	@tools/install.sh "$(PYTHON)" "$(VENV)" dev,docs
	@touch "$@"

train: $(INSTALLED) ## train PPO on CartPole-v1 until it is solved
	$(BIN)/rl train ppo/cartpole --seed $(SEED) --stop-at-return 475
	@echo "rl is in $(BIN): after 'source $(BIN)/activate' try 'rl eval latest --video', 'rl presets' and 'rl --help'"

test: lint type sizes ## lint, types, size hints and every fast test
	$(BIN)/pytest -q -m "not slow" -n $(WORKERS) --dist worksteal

test-slow: $(INSTALLED) ## the long tests: learning to published scores, faults
	$(BIN)/pytest -q -m slow -n $(WORKERS) --dist worksteal --timeout 3600

check: test ## all of `make test`, and that the installed versions fit together
	$(BIN)/python -m pip check

format: $(INSTALLED) ## rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint: $(INSTALLED) ## ruff: rules and format, changing nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(INSTALLED) ## mypy, strict
	$(BIN)/mypy

sizes: $(INSTALLED) ## list the files and functions that have grown large
	@$(BIN)/python tools/size_hints.py

bench: $(INSTALLED) ## measure speed and memory beside the peers, into docs/benchmarks.md (an hour)
	@for name in $(BENCHMARKS); do echo "== benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py || exit 1; done

bench-scores: $(INSTALLED) ## train every preset with its seeds and write docs/scores.md (hours)
	$(BIN)/python benchmarks/scores.py
	$(BIN)/python benchmarks/scores.py --backend jax

docs: $(DOCS_INSTALLED) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

clean: ## remove caches and built files; keeps .venv and runs
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .coverage htmlcov
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
