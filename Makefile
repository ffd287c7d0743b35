# make train   sets up .venv and trains DwoPP on the built-in benchmark
# make test    sets up .venv and runs the tests
# make lint    checks style
# Options for a tool: make train ARGS="--config configs/methods/dwpp.yaml SEED 1"

PYTHON ?= python3
BIN := .venv/bin
# faiss-gpu and faiss-cpu ship the same module, so a machine takes one of them.
FAISS := $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)

.PHONY: train test lint clean

train: .venv/installed
	$(BIN)/python tools/train.py $(ARGS)

test: .venv/installed
	$(BIN)/python -m pytest --numprocesses auto $(ARGS)

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.venv/installed: setup.py
	@echo "Installing lreid with its packages (torch is large: one to several minutes) …"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip setuptools wheel
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable ".[$(FAISS),dev]"
	touch $@

clean:
	rm -rf .venv *.egg-info .pytest_cache .ruff_cache .hypothesis
