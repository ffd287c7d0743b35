# make train     sets up .venv and trains DwoPP on the built-in benchmark
# make test      sets up .venv and runs all tests
# make quick     the tests without whole runs, processes, browsers and fuzzing: under two minutes on two idle cores
# make survive   tests kills, failing disks, races and damaged input for most of an hour; writes docs/reference/reliability.md
# make coverage  all tests, a quarter slower; prints how many lines they do not reach
# make lint      checks style, types and the English of pages and docstrings
# make docs      builds the documentation into site/
# make lock      writes the versions of all packages in .venv to requirements.lock
# Options for a tool: make train ARGS="--config configs/methods/dwpp.yaml SEED 1"; for pytest: make test ARGS="-k resume"

PYTHON ?= python3
BIN := .venv/bin
# faiss-gpu and faiss-cpu contain the same module, so only one of them is installed.
FAISS := $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)

# One test process per core; a process that has finished its tests takes over tests of the others.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist worksteal

.PHONY: train test quick survive coverage lint docs lock clean

train: .venv/installed
	$(BIN)/python tools/train.py $(ARGS)

test: .venv/developing
	$(PYTEST) $(ARGS)

quick: .venv/developing
	$(PYTEST) -m "not slow and not fuzz" $(ARGS)

survive: .venv/developing
	$(BIN)/python tests/survival/survive.py $(ARGS)

coverage: .venv/developing
	$(PYTEST) --cov --cov-report term:skip-covered $(ARGS)

lint: .venv/developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_english.py

docs: .venv/documenting
	$(BIN)/mkdocs build --strict

# Constraints for pip: PIP_CONSTRAINT=requirements.lock make test. Left out: what was installed from a folder, what only a
# GPU needs, and the part of a version that names a build (torch 2.9.1+cpu).
lock: .venv/developing
	$(BIN)/python -V | sed 's/^/# Made by "make lock" with /; s/$$/, for pip --constraint/' > requirements.lock
	$(BIN)/python -m pip freeze --exclude-editable | sed -E '/ @ |^(nvidia|cuda)-|^triton=/d; s/\+.*//' >> requirements.lock

# Most modules of the packages are never imported; the others are compiled at their first import.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --no-compile
EXTRAS := $(FAISS),train
.venv/developing: EXTRAS := $(EXTRAS),search,milvus,start,render,export,serve,heif,parquet,adapters,clip,docs,dev

.venv/developing: ALSO := .venv/installed
.venv/documenting: EXTRAS := docs

.venv/installed .venv/developing .venv/documenting: pyproject.toml
	@echo "Installing lreid with its packages (torch is large: one to several minutes) …"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP_INSTALL) --upgrade pip setuptools wheel
	PYTHONWARNINGS=ignore $(PIP_INSTALL) --editable ".[$(EXTRAS)]"
	touch $@ $(ALSO)

clean:
	rm -rf .venv *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage site
