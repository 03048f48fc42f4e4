# make quickstart | test | check | gpu-test | clean
PYTHON ?= python3
VENV ?= .venv
# A plain `torch` brings several GB of CUDA with it on Linux: name another build here, or point at one you have.
TORCH ?= torch==2.13.0
BIN := $(VENV)/bin

.PHONY: quickstart install install-dev test check gpu-test clean

quickstart: install
	$(BIN)/attnctl tune profiles/quickstart.yaml

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install -q "$(TORCH)"
	$(BIN)/python -m pip install -q -e ".[tune]"
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install -q -e ".[tune,dev]"
	touch $@

test: install-dev
	$(BIN)/python -m pytest -n 2

check: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

gpu-test:
	python3 -m pytest -m gpu

clean:
	rm -rf $(VENV) .attnctl
