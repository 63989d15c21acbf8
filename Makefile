# Every target sets up what it needs in .venv; `make PYTHON=python3.12 test` picks another interpreter.
PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/.ready
PIP_OPTIONS := --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint format docs bench fuzz soak oldest newest audit clean system-packages

help:
	@echo "make demo       learn an arm backwards, judge its posterior and leave a page to play with"
	@echo "make test       run the tests that take seconds, and the examples in docstrings"
	@echo "make test-slow  run the tests that take minutes"
	@echo "make lint       ruff, pyright and codespell"
	@echo "make format     let ruff rewrite the code"
	@echo "make docs       build the documentation into site/, gallery executed; needs npm, which fetches KaTeX"
	@echo "make bench      measure isr beside its peers in quick form; page in build/benchmarks"
	@echo "make fuzz       try 100,000 hostile inputs with fresh seeds; minutes to an hour"
	@echo "make soak       fit, sample, save, load and report in a loop for two hours (MINUTES=120) and watch memory"
	@echo "make oldest     run the tests with the oldest versions of everything that pyproject.toml allows"
	@echo "make newest     the same with the newest there are"
	@echo "make audit      list licences, and versions with known vulnerabilities"
	@echo "make clean      remove what the other targets made, environments included"

demo: $(READY)
	$(BIN)/python -m isr.cli demo --force

test: $(READY) system-packages
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist worksteal

test-slow: $(READY) system-packages
	XLA_FLAGS=--xla_cpu_multi_thread_eigen=false $(BIN)/python -m pytest -m slow -n $(WORKERS) --dist worksteal

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/codespell

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

BENCH_OUT ?= build/benchmarks
bench: $(BENCH_READY)
	$(BENCH_VENV)/bin/python benchmarks/run.py --quick --out $(BENCH_OUT)

FUZZ_EXAMPLES ?= 20000
fuzz: $(READY)
	ISR_FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest tests/fuzz -n $(WORKERS)
	@if $(BIN)/python -c "import atheris" 2>/dev/null; then \
		$(BIN)/python scripts/fuzz_readers.py -runs=$(FUZZ_EXAMPLES) -artifact_prefix=$${TMPDIR:-/tmp}/; \
	else echo "Atheris is not installed: pip install atheris for the coverage-guided part"; fi

MINUTES ?= 120
soak: $(READY)
	$(BIN)/python scripts/soak.py --minutes $(MINUTES)

oldest newest: $(READY)
	$(BIN)/python scripts/other_versions.py $@ --python $(PYTHON) --workers $(WORKERS)

audit: $(READY)
	$(BIN)/python scripts/licences.py
	@if $(BIN)/python -c "import pip_audit" 2>/dev/null; then \
		$(BIN)/python -m pip_audit --strict --disable-pip --no-deps -r constraints.txt; \
	else echo "pip-audit is not installed: pip install pip-audit to look for known vulnerabilities"; fi

clean:
	rm -rf $(VENV) $(BENCH_VENV) site build dist .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Some tests use Node, a C compiler or a browser, and are skipped where there is none.
system-packages: $(READY)
	@[ -e $(VENV)/.system-packages ] || bash scripts/system_packages.sh
	@touch $(VENV)/.system-packages

$(READY): pyproject.toml constraints.txt
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_OPTIONS) -c constraints.txt -e '.[dev]'
	@touch $@

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install $(PIP_OPTIONS) -c constraints.txt -e '.[docs]'
	@touch $@

$(BENCH_READY): pyproject.toml
	[ -x $(BENCH_VENV)/bin/python ] || $(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install $(PIP_OPTIONS) -e '.[bench]'
	@touch $@
