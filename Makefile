# Everything that a developer or a curious reader runs. Needed: make, Python >= 3.11, and pip or uv.
# The rest goes into .venv, with the versions of constraints.txt. A second run installs nothing.

VENV ?= .venv
ARGS ?=
# Processes that run tests, a file each at a time. Most tests wait for servers: two cores are busy with two.
JOBS ?= 2
# Another Python than the first suitable one: make test PYTHON=/path/to/python
PYTHON ?=
bin := $(VENV)/bin
# Files as they are collected: acceptance first, so that no long file begins when all others have ended.
pytest = $(bin)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help demo check test test-all test-long bench lint docs pictures dist wheeltest format clean
.DELETE_ON_ERROR:

help: ## Show this.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name what; do \
	  printf '  make %-9s %s\n' "$$name" "$$what"; done
	@echo "Arguments pass through: make demo ARGS='--seconds 10', make test ARGS='-k lease'"

demo: $(VENV)/.demo ## Watch it work: a graph, skewed traffic, a worker that is killed. Starts and stops all that it needs.
	$(bin)/refresher demo $(ARGS)

check: lint ## Lint, and run the unit tests: within a minute, without any server.
	$(pytest) --tier check tests/unit $(ARGS)

test: $(VENV)/.dev ## Run the tests that need no more than pip installs, on servers of their own: within five minutes.
	$(pytest) --tier test $(ARGS)

test-all: $(VENV)/.dev ## Run all that the two others leave out: RabbitMQ, Neo4j, Chromium, Helm, ... What is missing fails.
	CI=true $(pytest) --tier all $(ARGS)

test-long: $(VENV)/.dev ## Run what takes hours: large models, long soaks, mutants of the scripts, the benchmarks' quick runs.
	CI=true LONG_TESTS=1 $(pytest) --tier long $(ARGS)

bench: $(VENV)/.dev ## Measure: make bench ARGS='hits --rounds 3', or stampede, topology, worker, simulate, page.
	$(bin)/python -m benchmarks $(ARGS)

lint: $(VENV)/.dev ## Lint, type-check and verify import contracts.
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports

docs: $(VENV)/.dev ## Build the documentation as a site, in build/site.
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --quiet --strict --config-file .mkdocs.yml
	@echo "written: build/site/index.html"

pictures: $(VENV)/.dev ## Take the documentation's pictures anew: they are what the tests see.
	PICTURES=docs $(bin)/python -m pytest tests/acceptance/test_flower.py tests/acceptance/test_status_page.py \
	  tests/acceptance/test_demo_picture.py

# The time of the last commit stands in both: the same commit makes the same bytes, wherever it is built.
dist: $(VENV)/.dev ## Build wheel and sdist into dist/, and check what they hold.
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(bin)/python -m hatchling build -d dist >/dev/null
	$(bin)/python -m tests.support.distribution dist

wheeltest: $(VENV)/.dev ## Run reader, contract and main job against the wheel; with another Python: VENV=… PYTHON=…
	$(bin)/python -m pytest tests/integration/test_distribution.py tests/acceptance/test_wheel.py $(ARGS)

format: $(VENV)/.dev ## Format the code, and mend what ruff can mend.
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

clean: ## Remove all that make has made; Neo4j's downloaded jars stay in .cache.
	rm -rf "$(VENV)" .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist test-artefacts
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# What dev installs contains the demo: after `make test`, `make demo` has nothing to install.
$(VENV)/.demo: $(VENV)/.made pyproject.toml constraints.txt
	$(call install,.[demo])
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml constraints.txt
	$(call install,.[dev])
	@touch $@ $(VENV)/.demo

# A python3 in PATH may be too old, or a stub that only says that it is not installed: each is asked.
$(VENV)/.made:
	@for python in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11); do \
	  found=$$("$$python" -c 'import sys; assert sys.version_info >= (3, 11); print(sys.executable)' 2>/dev/null) || continue; \
	  if command -v uv >/dev/null; then uv venv --quiet --allow-existing --python "$$found" "$(VENV)" || exit; \
	  elif ! "$$found" -m venv "$(VENV)"; then \
	    echo "error: $$found can't make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; \
	  fi; \
	  touch $@; exit; \
	done; \
	echo "error: no Python >= 3.11 among $(or $(PYTHON),python3 python3.13 python3.12 python3.11): install one, or say where it is: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; \
	exit 1

define install
@echo "installing $(1) into $(VENV), with the versions of constraints.txt"; \
if command -v uv >/dev/null; then uv pip install --quiet --python $(bin)/python -c constraints.txt -e '$(1)'; \
else $(bin)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '$(1)'; fi
endef
