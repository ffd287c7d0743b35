# make train     sets up .venv and trains DwoPP on the built-in benchmark
# make test      sets up .venv and runs the tests
# make coverage  the same, a quarter slower; prints how many lines the tests do not reach
# make lint      checks style and types
# make docs      builds the documentation into site/
# Options for a tool: make train ARGS="--config configs/methods/dwpp.yaml SEED 1"

PYTHON ?= python3
BIN := .venv/bin
# faiss-gpu and faiss-cpu ship the same module, so a machine takes one of them.
FAISS := $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)

.PHONY: train test coverage lint docs clean

train: .venv/installed
	$(BIN)/python tools/train.py $(ARGS)

test: .venv/developing
	$(BIN)/python -m pytest --numprocesses auto $(ARGS)

coverage: .venv/developing
	$(BIN)/python -m pytest --numprocesses auto --cov --cov-report term:skip-covered $(ARGS)

lint: .venv/developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/developing
	$(BIN)/mkdocs build --strict

.venv/installed: setup.py
	@echo "Installing lreid with its packages (torch is large: one to several minutes) …"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip setuptools wheel
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable ".[$(FAISS)]"
	touch $@

.venv/developing: .venv/installed
	@echo "Installing what tests, checks and documentation need …"
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable ".[$(FAISS),milvus,export,docs,dev]"
	touch $@

clean:
	rm -rf .venv *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage site
