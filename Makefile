# Needs Python >= 3.11 and make; everything else is installed into .venv, at the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check
SPHINX := $(BIN)/python -m sphinx --quiet --jobs auto --conf-dir website
NOTEBOOKS := $(patsubst notebooks/%.py,build/notebooks/%.ipynb,$(wildcard notebooks/*.py))
# Those of papers train for a minute or more each: they are run by `make docs`, which needs their outputs, and a slow test.
LONG := $(patsubst %,build/notebooks/%.ipynb,basis_rotation curvadion demo lion_cub mt_dao staleness)
QUICK := $(filter-out $(LONG),$(NOTEBOOKS))
# Notebooks alone need nbmake, whose import takes seconds; nothing needs the plugin of anyio, which goes through all tests.
PYTEST := $(BIN)/python -m pytest -p no:nbmake -p no:anyio --numprocesses 2 --dist loadfile
# Notebooks of papers import `replication` from the root. A cell may take an hour on machines that are busy; whatever takes longer has failed.
READ := PYTHONPATH=$(CURDIR) $(BIN)/python -m pytest -p tests.kernels -p no:cacheprovider --nbmake --nbmake-timeout 3600 --overwrite
# A test starts many processes, and each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(PIP) install --quiet --constraint constraints.txt --editable

.PHONY: help demo test check slow slow-tenth lint docs linkcheck notebooks wheel wheel-check lowest sbom release bench clean
demo: .venv/installed
	$(BIN)/python -m benchmarks.headline demo

help:
	@echo 'make check       ruff, mypy, and the tests that differ from main or test what does: about a minute'
	@echo 'make test        all tests that are not slow, doctests and short notebooks: 8 minutes on two cores'
	@echo 'make slow        the tests marked slow; make slow-tenth: the tenth of this commit'
	@echo 'make lint        ruff, mypy, also on the examples, and which module imports which'
	@echo 'make docs        the documentation as a site'
	@echo 'CONTRIBUTING.md has the others.'

# Most tests need one core, so two run at a time; the notebooks, which are kept as scripts, beside them, and what they
# say comes last.
test: .venv/installed-test $(QUICK)
	@$(READ) $(QUICK) > build/notebooks.log 2>&1 & notebooks=$$!; \
	trap 'kill $$notebooks 2> /dev/null' EXIT INT TERM; \
	$(PYTEST) tests syncline replication; tests=$$?; \
	wait $$notebooks; read=$$?; cat build/notebooks.log; exit $$((tests + read))

build/notebooks/%.ipynb: notebooks/%.py .venv/installed-test
	@mkdir -p $(@D)
	$(BIN)/jupytext --quiet --to ipynb --output $@ $<

# The site takes the notebooks with their outputs.
build/notebooks/executed: $(NOTEBOOKS)
	$(READ) $(NOTEBOOKS)
	@touch $@

docs: .venv/installed-docs build/notebooks/executed
	$(BIN)/python website/lay_out.py
	$(SPHINX) --fail-on-warning --keep-going --builder html build/site build/docs
	$(BIN)/python website/check_links.py build/docs
	@echo 'The documentation is at build/docs/index.html'

# Asks the servers of others, so it is no part of the tests.
linkcheck: .venv/installed-docs build/notebooks/executed
	$(BIN)/python website/lay_out.py
	$(SPHINX) --builder linkcheck build/site build/linkcheck

# From the sdist, so both are whole. What builds is installed, so that nothing is fetched.
wheel: .venv/installed-dev
	rm -rf build/dist build/lib build/bdist*
	$(BIN)/python -m build --no-isolation --outdir build/dist . > build/dist.log || { cat build/dist.log; exit 1; }
	$(BIN)/python -m tests.wheel build/dist/*.whl

# Before a release: the lowest and the newest dependencies, which takes minutes.
wheel-check: wheel
	$(BIN)/python -m tests.wheel build/dist/*.whl --dependencies lowest,newest

# The tests that matter with the lowest dependencies, torch too: a download of gigabytes. Extras that need newer ones
# (nicegui, distributed, optuna) are left out, and their tests are skipped.
lowest: .venv/installed-test
	$(PYTHON) -m venv build/lowest
	$(BIN)/python -c 'from tests.wheel import lowest; print(*lowest(with_torch=True), sep="\n")' > build/lowest.txt
	build/lowest/bin/pip install --quiet --constraint build/lowest.txt . \
	  beartype hypothesis networkx protobuf psutil pytest pytest-benchmark pytest-xdist
	build/lowest/bin/python -m pytest --numprocesses 2 --dist loadfile tests/comm tests/costmodel tests/methods \
	  tests/optim tests/problems tests/sim tests/specs tests/cli/test_application.py tests/test_training.py

# What the wheel needs at run time, at the versions that the tests ran with.
sbom: wheel
	$(BIN)/python -m tests.sbom build/dist/*.whl build/dist/sbom.cdx.json

# All that a release has, checked; the recipe is in CONTRIBUTING.md.
release: wheel-check sbom
	cd build/dist && sha256sum *.whl *.tar.gz sbom.cdx.json > SHA256SUMS && cat SHA256SUMS

notebooks: .venv/installed-notebooks $(NOTEBOOKS)
	PYTHONPATH=$(CURDIR) $(BIN)/jupyter lab --notebook-dir build/notebooks

slow: .venv/installed-test
	$(PYTEST) -m slow tests

# What continuous integration runs of them: ten commits in a row run all.
slow-tenth: .venv/installed-test
	$(PYTEST) -p tests.tenth -m slow tests

# Before a commit, on a checkout where both have run before.
check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@touched=$$($(BIN)/python -m tests.touched); \
	if [ -n "$$touched" ]; then $(PYTEST) $$touched || [ $$? = 5 ]; else echo 'no test is touched'; fi

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
	$(BIN)/python -m benchmarks.tracing --quick
	$(BIN)/python -m benchmarks.messages --seconds 1 --repeats 1
	$(BIN)/python -m benchmarks.explore --moves 3

clean:
	rm -rf .venv build runs

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Syncline needs Python >= 3.11; $(PYTHON) is older. Name another one: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv .venv

# An editable install compiles the event engine, and no Python: the first command would.
.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) .
	$(BIN)/python -m compileall -q syncline
	@touch $@

.venv/installed-test: .venv/installed
	$(INSTALL) '.[test]'
	@touch $@

# For continuous integration: at once what it would install one after another.
.venv/installed-all: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) '.[test,dev,docs]'
	@touch .venv/installed .venv/installed-test .venv/installed-dev .venv/installed-docs $@

.venv/installed-docs: .venv/installed
	$(INSTALL) '.[docs]'
	@touch $@

.venv/installed-notebooks: .venv/installed-test
	$(INSTALL) '.[test,notebooks]'
	@touch $@

.venv/installed-dev: .venv/installed-test
	$(INSTALL) '.[test,dev]'
	@touch $@
