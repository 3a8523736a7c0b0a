# Two commands do everything on a fresh machine: `make demo` and `make test`; `make docs` is a third.

PYTHON ?= python3
BIN := .venv/bin

# Without bytecode every process would compile all that it imports again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow bench notebooks docs format setup lock clean

demo: setup  ## train, measure, fit, schedule and show it: runs/demo/report.html
	$(BIN)/python -m experiments.es_curve --config=configs/es_curve.py:demo

test: setup  ## lint, types, imports, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyrefly check --min-severity error
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -n 2 --dist loadfile

test-slow: setup  ## the tests that take minutes
	$(BIN)/pytest -m slow -n 2 --dist loadfile

# `.venv/bin/pip install 'batch-size-scaling[torch]'` adds PyTorch, the rival.
bench: setup  ## this machine's speed beside others': step, ramp, start; ONLY=ramp, ARGS=--cores=1
	for name in $(or $(ONLY),step ramp start); do $(BIN)/python -m benchmarks.$$name $(ARGS) || exit; done

notebooks: setup  ## run them in place on results/; RUN=cpu or gpu repeats their experiments first
	$(BIN)/python notebooks/execute.py

# In a folder of their own, so that set-up stays quick.
docs: setup .cache/docs/ready  ## the pages of docs/, every option and the Python interface: site/index.html
	PYTHONPATH=.cache/docs NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

.cache/docs/ready: pyproject.toml
	rm -rf .cache/docs && mkdir -p .cache
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project'] \
		['optional-dependencies']['docs'], sep='\n')" > .cache/docs.txt
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check \
		--target .cache/docs --constraint requirements.lock -r .cache/docs.txt
	touch $@

format: setup  ## what `make test` checks, mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: .venv/ready

.venv/ready: requirements.lock requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps \
		-r requirements.lock --editable .
	touch $@

lock: setup  ## renew the exact versions
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url \
		--extra train --extra test --extra notebooks pyproject.toml -o requirements.lock

clean:  ## environment, corpora, runs and the site
	rm -rf .venv .cache/docs data runs site
