# Two commands set everything up by themselves: `make demo` and `make test`.
# `make check` adds lint, types, the import contracts and the house rules; `make wheel` builds the wheel and installs it apart.

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
# On Linux the default index's newest torch brings several GB of CUDA; TORCH names the build to install.
TORCH  ?= torch==2.13.0
DEMO_SECONDS ?= 60
# Tests run in so many processes side by side; each wants a core.
TEST_WORKERS ?= 2

export JAX_PLATFORMS ?= cpu
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo test lint types contract house check docs web wheel bench gpu-bundle clean

help:           ## list the targets
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | sort

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet -c constraints.txt -e '.[jax]'
	$(BIN)/python -m compileall -q src  # as pip does where it copies files: the first import in a job would pay for it
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet -c constraints.txt '$(TORCH)'
	$(BIN)/pip install --quiet -c constraints.txt -e '.[jax,torch,cluster,dev]'
	@touch $@

demo: $(VENV)/.demo          ## train a real network under the recorder, print the verdict, write runs/demo/report.html
	$(BIN)/phasepoint demo --out runs/demo --seconds $(DEMO_SECONDS) --force

test: $(VENV)/.dev           ## run the tests
	$(BIN)/python -m pytest -n $(TEST_WORKERS) -m "not alone"
	$(BIN)/python -m pytest -m alone

lint: $(VENV)/.dev           ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev          ## mypy, strict on src
	$(BIN)/mypy

contract: $(VENV)/.dev       ## floors import downwards only
	$(BIN)/lint-imports

house: $(VENV)/.dev          ## names, sizes, constants, small files, circles (CONTRIBUTING.md, "House rules")
	$(BIN)/python tests/house/house_rules.py

check: lint types contract house   ## everything that needs no run

docs: $(VENV)/.dev           ## regenerate docs/tables.md and docs/findings.md from the code
	$(BIN)/phasepoint tables --format md > docs/tables.md
	$(BIN)/phasepoint explain --output docs/findings.md --force

web:            ## build the report's script and style from web/ (needs Node)
	cd web && npm ci --no-audit --no-fund && npm run check && npm run build

wheel: $(VENV)/.dev          ## build the wheel, install it into an empty environment, run it there
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/python -m build --wheel --outdir build/wheel .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip install --quiet -c constraints.txt build/wheel/*.whl
	cd build/wheel && venv/bin/phasepoint --help > /dev/null && venv/bin/python -c "import phasepoint; print('wheel', phasepoint.__version__)"

gpu-bundle: $(VENV)/.dev     ## wheels of what a machine with a GPU lacks, into build/gpu-bundle (docs/gpu.md)
	$(BIN)/python -m benchmarks.gpu.bundle --out build/gpu-bundle

clean:          ## remove what was built; runs/ stays
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
