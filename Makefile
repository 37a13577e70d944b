# build, run, fix, check, test: everything needs only Python 3.11 or newer (with venv and headers) and a C compiler.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamps
HOST   ?= 127.0.0.1
PORT   ?= 8080
TESTS  ?=

# One line per step; `make V=1` shows what the tools say.
QUIET  := $(if $(V),,--quiet)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

SPEEDUPS := $(wildcard arbiter/_speedups/c/*.pyx arbiter/_speedups/c/*.pxd arbiter/_speedups/c/*.h)

.DEFAULT_GOAL := help
.PHONY: help build run test fix check bench lock image-check clean

help:  ## Show the verbs
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r verb text; do printf '  %-18s %s\n' "$$verb" "$$text"; done

# ------------------------------------------------------------------------------------------ set-up, each once

$(STAMP)/venv:
	@$(PYTHON) scripts/needs.py
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMP) && touch $@

$(STAMP)/runtime: requirements.lock requirements-build.lock | $(STAMP)/venv
	@echo "installing what the gateway needs"
	@$(BIN)/pip install $(QUIET) --require-hashes -r requirements.lock -r requirements-build.lock
	@touch $@

$(STAMP)/compiled: setup.py $(SPEEDUPS) $(STAMP)/runtime
	@echo "compiling arbiter/_speedups"
	@mkdir -p build && $(BIN)/python setup.py build_ext --inplace $(if $(V),,>build/log 2>&1) || { \
	  $(if $(V),,cat build/log >&2;) echo "The C side did not compile." >&2; exit 1; }
	@touch $@

$(STAMP)/built: pyproject.toml $(STAMP)/compiled
	@[ -x $(BIN)/arbiter ] && [ ! pyproject.toml -nt $@ ] || \
	  ARBITER_COMPILED_IN_PLACE=1 $(BIN)/pip install $(QUIET) --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMP)/dev: requirements-dev.lock $(STAMP)/built
	@echo "installing what the tests and checks need"
	@$(BIN)/pip install $(QUIET) --require-hashes -r requirements-dev.lock
	@touch $@

# --------------------------------------------------------------------------------------------------- the verbs

build: $(STAMP)/built  ## Compile the hot path into this tree and install the `arbiter` command into .venv

# A shell in between would die of Ctrl-C, and make would report that in place of the gateway's own exit code.
run: $(STAMP)/built  ## Serve the demo (no key, no network) at http://127.0.0.1:8080; PORT=... for another
	@exec env HOST=$(HOST) PORT=$(PORT) $(BIN)/arbiter demo

test: $(STAMP)/dev  ## Run the tests; TESTS="tests/unit -k name" for some
	@$(BIN)/python -m pytest -q $(TESTS)

fix: $(STAMP)/dev  ## Sort imports, format, and repair what ruff can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

check: $(STAMP)/dev  ## Lint, format, types, import layers; changes nothing
	@bad=; $(BIN)/ruff check . || bad=1; $(BIN)/ruff format --check . || bad=1; $(BIN)/mypy || bad=1; \
	  $(BIN)/lint-imports --no-logo || bad=1; [ -z "$$bad" ]

bench: $(STAMP)/dev  ## Measure the gateway beside nginx; needs nginx, cargo, two cores and a few quiet minutes
	@$(BIN)/python -m bench.path $(BENCH)

lock:  ## Pin dependencies anew (UPGRADE=1: look for newer ones)
	@PYTHON="$(PYTHON)" UPGRADE="$(UPGRADE)" scripts/lock.sh

image-check:  ## Run the image's build steps in a chroot and try the result; needs root and mmdebstrap
	@scripts/image-check.sh

clean:  ## Remove what the verbs made
	@rm -rf $(VENV) .cache build bench/loadgen/target dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .import_linter_cache
	@rm -f arbiter/_speedups/c/*.c arbiter/_speedups/c/*.so
	@find arbiter tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +
