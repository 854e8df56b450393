# Needs Python >= 3.11 and make; everything else is installed into .venv, at the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check
NOTEBOOKS := $(patsubst notebooks/%.py,build/notebooks/%.ipynb,$(wildcard notebooks/*.py))
INSTALL := $(PIP) install --quiet --constraint constraints.txt --editable

.PHONY: demo test slow lint bench clean
demo: .venv/installed
	$(BIN)/python -m benchmarks.headline demo

# One run and one summary for the tests and the notebooks, which are kept as scripts.
test: .venv/installed-test $(NOTEBOOKS)
	$(BIN)/python -m pytest --nbmake tests syncline $(NOTEBOOKS)

build/notebooks/%.ipynb: notebooks/%.py .venv/installed-test
	@mkdir -p $(@D)
	$(BIN)/jupytext --quiet --to ipynb --output $@ $<

slow: .venv/installed-test
	$(BIN)/python -m pytest -m slow

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy examples
	$(BIN)/lint-imports

bench: .venv/installed-test
	$(BIN)/python -m pytest benchmarks --benchmark-only
	$(BIN)/python -m benchmarks.wire
	$(BIN)/python -m benchmarks.network --quick
	$(BIN)/python -m benchmarks.pipeline --quick
	$(BIN)/python -m benchmarks.training --quick
	$(BIN)/python -m benchmarks.sweep --runs 200 --rounds 1 --long-runs 4
	$(BIN)/python -m benchmarks.projection --quick

clean:
	rm -rf .venv build runs

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Syncline needs Python >= 3.11; $(PYTHON) is older. Name another one: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) .
	@touch $@

.venv/installed-test: .venv/installed
	$(INSTALL) '.[test]'
	@touch $@

.venv/installed-dev: .venv/installed-test
	$(INSTALL) '.[test,dev]'
	@touch $@
