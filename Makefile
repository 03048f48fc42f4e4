# make quickstart | test | check | docs | gpu-test | clean
PYTHON ?= python3
VENV ?= .venv
# A plain `torch` brings several GB of CUDA with it on Linux: name another build here, or point at one you have.
TORCH ?= torch==2.13.0
# The rules are written against this release, and the tests compile and call it.
FA4 ?= flash-attn-4==4.0.0b36
BIN := $(VENV)/bin

.PHONY: quickstart install install-dev test check docs gpu-test clean

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
	$(BIN)/python -m pip install -q -e ".[fa4,report,dev]" "$(TORCH)" "$(FA4)"
	touch $@

# The tests start the program some thousand times: it should not be compiled each time.
test: export PYTHONDONTWRITEBYTECODE :=
test: install-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: install-dev
	$(BIN)/mkdocs build --strict --quiet

gpu-test:
	python3 -m pytest -m gpu

clean:
	rm -rf $(VENV) .attnctl site
