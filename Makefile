# `make demo` and `make test` need Python 3.11+ and make; everything else they bring along.
.DEFAULT_GOAL := help
.PHONY: help demo effects test test-frameworks test-packages soak corpus lint size docs bench clean

VENV := .venv
BIN := $(VENV)/bin
# A virtual environment with torch and JAX: `make test` runs without them.
FRAMEWORKS := .venv-frameworks
# The newest suitable interpreter; `make PYTHON=... demo` takes another one.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo "$$p"; break; }; done)

help:
	@echo "make demo   compile examples/02_gemm.py, run it, compare with NumPy (ARGS=-v: every dump)"
	@echo "make test   run the tests, of many parameters a sample (those that need a GPU are skipped without one)"
	@echo "make test-frameworks  the tests that use torch, JAX, other optional packages and packers of weights, without a GPU"
	@echo "make test-packages  build wheel and sdist, install them in fresh environments, resolve their requirements on each platform"
	@echo "make effects  compare the effects of all ops with simulated runs; each effect that is left out must be found"
	@echo "make soak   what takes hours: all parameters, generated programs, schedules and mutants; ARGS=2000 for fewer"
	@echo "make corpus compare the PTX of 1,000 kernels with BASE=main (previous: the commit before); ARGS=--all, ARGS=\"--sample 100\""
	@echo "make lint   size, prose, ruff, pyright, import-linter"
	@echo "make size   lines by package and bytes of tests versus tools/budget.toml"
	@echo "make docs   write docs/ir.md again from the docstrings of the ops, docs/rates.md from the rates"
	@echo "make bench  run the benchmarks (needs a GPU and torch)"

demo: $(VENV)/run
	@$(BIN)/python tools/demo.py $(ARGS)

# What is tested is compiled here and now, and the user's own cache is left alone.
test test-frameworks test-packages soak: export WSDSL_CACHE_DIR = off

test: $(VENV)/dev
	$(BIN)/python -m pytest -n 2 --dist worksteal --timeout 300 $(ARGS)

test-frameworks: $(FRAMEWORKS)/dev
	$(FRAMEWORKS)/bin/python -m pytest --frameworks -n 2 --dist worksteal --timeout 300 $(ARGS)

test-packages: $(VENV)/dev
	$(BIN)/python -m pytest -m registry --timeout 600 $(ARGS) tests/export tests/plugins

# Long runs, one line each: all are made, and it fails if one of them does. SEED= begins elsewhere.
SEED ?= 0
soak: $(VENV)/dev
	@status=0; $(BIN)/python -m pytest --all -n 2 --dist worksteal --timeout 600 || status=1; \
		for run in "generated $(or $(ARGS),20000)" "lowering.indexed_operands 2000" \
			"prover.random_schedules 1000" "prover.test_mutants 100" "prover.test_generated" \
			"prover.skeletons" "prover.test_skeleton" \
			"prover.ptx_mutants 20000" "prover.hostile 1000"; do \
		echo "tests.$$run $(SEED)"; $(BIN)/python -m tests.$$run $(SEED) || status=1; done; \
		echo "tools.compare_ptx . . --all"; $(BIN)/python -m tools.compare_ptx . . --all || status=1; exit $$status

effects: $(VENV)/dev
	$(BIN)/python -m pytest --all tests/simulator/test_effects.py

BASE ?= main
corpus: $(VENV)/dev
	$(BIN)/python -m tools.compare_ptx $(BASE) $(ARGS)

lint: $(VENV)/dev
	@status=0; for linter in "python tools/size.py" "python -m tools.prose" "ruff check ." "ruff format --check ." pyright "pyright -p tests/typing" lint-imports; do \
		echo "$$linter"; $(BIN)/$$linter || status=1; done; exit $$status

size:
	@$(PYTHON) tools/size.py

docs: $(VENV)/run
	$(BIN)/python tools/ir_docs.py
	$(BIN)/python tools/rates_docs.py

bench: $(VENV)/run
	$(BIN)/python -m benchmarks.device --bench $(ARGS)

clean:
	rm -rf $(VENV) $(FRAMEWORKS) build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# The files run and dev of an environment say what is installed: the package, and the tools to work on it.
%/pip:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found. Debian 12+, Ubuntu 24.04+:" \
		"apt install python3 python3-venv. Elsewhere: make PYTHON=/path/to/python3.11 demo"; exit 1; }
	@$(PYTHON) tools/make_venv.py $*
	@touch $@

INSTALL := -m pip install --quiet --disable-pip-version-check --editable

$(VENV)/run: $(VENV)/pip pyproject.toml
	@echo "Installing wsdsl into $(VENV)"
	@$(BIN)/python $(INSTALL) .
	@touch $@

$(VENV)/dev: $(VENV)/run
	@echo "Installing the test tools into $(VENV)"
	@$(BIN)/python $(INSTALL) '.[dev]'
	@touch $@

$(FRAMEWORKS)/dev: $(FRAMEWORKS)/pip pyproject.toml tools/frameworks.txt
	@echo "Installing the test tools, torch and JAX into $(FRAMEWORKS)"
	@$(FRAMEWORKS)/bin/python $(INSTALL) '.[test,frameworks,plot,progress,zstd]' -c tools/frameworks.txt
	@touch $@
