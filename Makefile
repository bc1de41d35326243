# make demo | test | lint | format | bench. Needs Python 3.11 or newer, a C++20 compiler and a Python package index; the rest
# (CMake, Ninja, pybind11, linters) is installed into $(VENV) at the versions of constraints.txt.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3,$(shell $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
VENV ?= .venv
BUILD ?= build
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
# The sub-packages of cloakwork that exist in this checkout (pyproject.toml maps each one).
PACKAGES := $(filter fhe_core models training api app,$(patsubst %/,%,$(wildcard */)))
PYTHON_FILES = $(shell git ls-files --cached --others --exclude-standard -- '*.py' '*.pyi')
CPP_FILES = $(shell git ls-files --cached --others --exclude-standard -- '*.hpp' '*.cpp' '*.cu' '*.cuh')
SOURCES := $(shell find $(PACKAGES) -type f -not -path '*/__pycache__/*' 2>/dev/null) pyproject.toml constraints.txt README.md

.PHONY: demo test lint lint-ruff lint-mypy lint-imports lint-clang-format format bench bench-openfhe install clean

demo: install $(VENV)/.demo-tools
	$(BIN)/cloakwork demo mnist $(DEMO_ARGS)

test: install $(VENV)/.test-tools
	$(BIN)/python -m pytest $(PYTEST_ARGS)

bench: install
	$(BIN)/python tests/benchmarks/run.py $(BENCH_ARGS)

# Needs Python 3.10 as well (OpenFHE's wheel); takes a few minutes on an otherwise idle machine.
bench-openfhe: install
	mkdir -p $(BUILD)
	$(BIN)/python tests/benchmarks/compare_openfhe.py --environment $(BUILD)/openfhe --json $(BUILD)/openfhe.json --markdown docs/benchmarks/cpu.md

lint: lint-ruff lint-mypy lint-imports lint-clang-format

lint-ruff: $(VENV)/.lint-tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-mypy: install $(VENV)/.lint-tools $(VENV)/.test-tools typecheck-tree
	MYPYPATH=$(BUILD)/typecheck $(BIN)/mypy --cache-dir $(BUILD)/mypy $(addprefix $(BUILD)/typecheck/cloakwork/,$(PACKAGES))
	MYPYPATH=$(BUILD)/typecheck $(BIN)/mypy --cache-dir $(BUILD)/mypy tests/benchmarks

lint-imports: $(VENV)/.lint-tools typecheck-tree
	PYTHONPATH=$(BUILD)/typecheck $(BIN)/lint-imports

lint-clang-format: $(VENV)/.lint-tools
	$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)

format: $(VENV)/.lint-tools
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP_FILES)

# The folders at the top of the repository are sub-packages of `cloakwork`; the static checkers see them there through links.
.PHONY: typecheck-tree
typecheck-tree:
	mkdir -p $(BUILD)/typecheck/cloakwork
	find $(BUILD)/typecheck/cloakwork -type l -delete
	for package in $(PACKAGES); do ln -s "$(CURDIR)/$$package" $(BUILD)/typecheck/cloakwork/; done

install: $(VENV)/.installed

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer was not found; install it, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.build-tools: constraints.txt | $(BIN)/python
	$(PIP) scikit-build-core pybind11 cmake ninja
	@touch $@

# Not editable: the tests see what a user installs. Build tools stay in $(VENV), so that a second build compiles only what changed.
$(VENV)/.installed: $(SOURCES) $(VENV)/.build-tools
	@echo "building and installing cloakwork into $(VENV) (a minute or two the first time)"
	$(PIP) --no-build-isolation --config-settings=build-dir=$(BUILD)/{wheel_tag} .
	@touch $@

# The picture that the demonstration writes.
$(VENV)/.demo-tools: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['demo'], sep='\n')" \
		| $(PIP) --requirement /dev/stdin
	@touch $@

$(VENV)/.test-tools: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['test'], sep='\n')" \
		| $(PIP) --requirement /dev/stdin
	@touch $@

$(VENV)/.lint-tools: constraints.txt | $(BIN)/python
	$(PIP) ruff mypy import-linter clang-format
	@touch $@

clean:
	rm -rf $(BUILD)/typecheck $(BUILD)/cp* $(BUILD)/py*
