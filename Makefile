# Commands for developers and newcomers. Needs make, Python >= 3.11, and pip or uv.
# Everything else is installed into .venv, with the versions of constraints.txt; a second run installs nothing.

VENV ?= .venv
ARGS ?=
# Number of test processes; each runs one file at a time, or those that share a costly server. The default suits two cores.
JOBS ?=
# To use another Python than the first suitable one: make test PYTHON=/path/to/python
PYTHON ?=
bin := $(VENV)/bin
# Tests run in random order; the first lines of a run show its seed, ARGS='--randomly-seed=N' repeats it.
# Files that take long go first (tests/support/tiers.py).
pytest = $(measured) $(bin)/python$(if $(COVERAGE), -m coverage run) -m pytest \
  -n $(or $(JOBS),$(jobs)) --dist loadgroup --no-loadscope-reorder
jobs = 2
# These wait more than they compute: for servers that fail over, breakers, timeouts.
test: jobs = 3
test-all: jobs = 6
test-long: jobs = 4
# Tests start hundreds of processes, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# make test COVERAGE=1 reports the branches that this tier reaches, in subprocesses too; make coverage, all measured tiers.
COVERAGE ?=
reached = $(CURDIR)/build/coverage/$@
measured = $(if $(COVERAGE),COVERAGE_FILE=$(reached))
report = $(if $(COVERAGE),; status=$$?; $(bin)/coverage combine --quiet --data-file $(reached); \
  $(bin)/coverage report --data-file $(reached); exit $$status)

version = $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' api_client/_version.py)

.DEFAULT_GOAL := help
.PHONY: help demo check test test-all test-long coverage bench lint docs pictures dist wheeltest release format clean
.DELETE_ON_ERROR:

help: ## Show this help.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name what; do \
	  printf '  make %-9s %s\n' "$$name" "$$what"; done
	@echo "Arguments pass through: make demo ARGS='--seconds 10', make test ARGS='-k lease'"

demo: $(VENV)/.demo ## Run the end-to-end demo: kills a worker under load, fails if a guarantee is broken. Starts and stops its servers.
	$(bin)/refresher demo $(ARGS)

check: lint ## Lint, and run the unit tests: within a minute, without a server.
	$(pytest) --tier check tests/unit $(ARGS)$(report)

test: $(VENV)/.dev ## Run the tests that need only what pip installs, on servers of their own: within five minutes.
	$(pytest) --tier test --ignore tests/unit $(ARGS)$(report)

test-all: $(VENV)/.dev ## Run the other tests: RabbitMQ, Neo4j, Chromium, Helm, ... Fails if one of these is missing.
	CI=true $(pytest) --tier all --ignore tests/unit $(ARGS)$(report)

test-long: $(VENV)/.dev ## Run the long tests: large models, a soak, mutants of the scripts, quick benchmarks: within 90 minutes.
	CI=true LONG_TESTS=1 $(pytest) --tier long $(ARGS)$(report)

coverage: $(VENV)/.dev ## Report the branches that all tiers run with COVERAGE=1 reached, together.
	$(bin)/coverage combine --quiet --keep --data-file build/coverage/all.tiers \
	  $(wildcard $(addprefix build/coverage/,check test test-all test-long))
	$(bin)/coverage report --data-file build/coverage/all.tiers

bench: $(VENV)/.dev ## Run a benchmark: make bench ARGS='hits --rounds 3' (or stampede, topology, worker, feed, simulate, page).
	$(bin)/python -m benchmarks $(ARGS)

lint: $(VENV)/.dev ## Lint, type-check and verify import contracts.
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports

docs: $(VENV)/.dev ## Build the documentation site in build/site.
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --strict --config-file .mkdocs.yml
	@echo "written: build/site/index.html"

pictures: $(VENV)/.dev ## Update the screenshots of the documentation; tests take them.
	PICTURES=docs/pictures $(bin)/python -m pytest tests/acceptance/test_pictures.py tests/acceptance/test_demo_picture.py

# Both contain the time of the last commit: the same commit builds the same bytes everywhere.
dist: $(VENV)/.dev ## Build wheel and sdist into dist/, and check their contents.
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(bin)/python -m hatchling build -d dist >/dev/null
	$(bin)/python -m tests.support.distribution dist

wheeltest: $(VENV)/.dev ## Test the built wheel: reader, contracts, main job. For another Python: VENV=… PYTHON=…
	$(bin)/python -m pytest tests/integration/test_distribution.py tests/acceptance/test_wheel.py $(ARGS)

release: ## Check, build and tag the version of api_client/_version.py. Pushing the tag and uploading dist/ are left to you.
	@[ -z "$$(git status --porcelain)" ] || { echo "error: uncommitted changes: commit them first" >&2; exit 1; }
	@! git rev-parse -q --verify "refs/tags/v$(version)" >/dev/null || \
	  { echo "error: v$(version) is tagged already: raise api_client/_version.py" >&2; exit 1; }
	@grep -Eq "^## \[$(version)\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$$" CHANGELOG.md || \
	  { echo "error: CHANGELOG.md has no date for $(version): write ## [$(version)] - $$(date +%F)" >&2; exit 1; }
	@! grep -q 'example\.org' pyproject.toml || \
	  { echo "error: pyproject.toml names no repository yet: replace example.org there" >&2; exit 1; }
	@! grep -rqs '^Not published yet' README.md docs || \
	  { echo "error: README.md or docs say 'Not published yet': remove these lines" >&2; exit 1; }
	$(MAKE) check test dist wheeltest
	git tag -a "v$(version)" -m "refresher $(version)"
	@echo "tagged v$(version); next: git push origin v$(version), and upload dist/"

format: $(VENV)/.dev ## Format the code, and fix what ruff can fix.
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

clean: ## Remove everything that make has created, except Neo4j's jars and images in .cache.
	rm -rf "$(VENV)" .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist test-artefacts
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# The dev extra includes the demo: after `make test`, `make demo` installs nothing.
$(VENV)/.demo: $(VENV)/.made pyproject.toml constraints.txt
	$(call install,.[demo])
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml constraints.txt
	$(call install,.[dev])
	@touch $@ $(VENV)/.demo

# A python3 in PATH may be too old, or a stub: each candidate is tried.
$(VENV)/.made:
	@for python in $(if $(PYTHON),"$(PYTHON)",python3 python3.14 python3.13 python3.12 python3.11); do \
	  found=$$("$$python" -c 'import sys; assert sys.version_info >= (3, 11); print(sys.executable)' 2>/dev/null) || continue; \
	  if command -v uv >/dev/null; then uv venv --quiet --allow-existing --python "$$found" "$(VENV)" || exit; \
	  elif ! "$$found" -m venv "$(VENV)"; then \
	    echo "error: $$found cannot create virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; \
	  fi; \
	  touch $@; exit; \
	done; \
	echo "error: no Python >= 3.11 among $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11): install one, or pass its path: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; \
	exit 1

define install
@echo "installing $(1) into $(VENV), with the versions of constraints.txt"; \
if command -v uv >/dev/null; then uv pip install --quiet --python $(bin)/python -c constraints.txt -e '$(1)'; \
else $(bin)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '$(1)'; fi
endef
