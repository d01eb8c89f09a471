# Every target sets up what it needs by itself: a .venv in the checkout, pinned by constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.ready-docs

.PHONY: setup demo check test test-gpu bench docs results dist audit clean

setup: $(READY)

# constraints.txt pins torch to a version with a CPU build: unconstrained, pip may fetch gigabytes
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[data,dev,explorer,export,hf,log,serve]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[ray]" \
		|| echo "Ray could not be installed: its tests are skipped"
	touch $(READY)

# Three networks trained, judged and explained on generated scenes; the report lies in demo/.
demo: $(READY)
	$(BIN)/scaseg demo --out demo --overwrite $(ARGS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One process a core, one thread each: more threads than cores would fight over them.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not gpu" -n auto --dist worksteal $(ARGS)

# No network and no installation: whatever Python and torch are there. Kernels are compiled in
# eight processes, each with its share of the tests (5: none was left for one).
test-gpu:
	@for part in 0 1 2 3 4 5 6 7; do \
	  SHARD=$$part/8 PYTHONPATH=src $(PYTHON) -m pytest -c /dev/null --rootdir . \
	    -p no:cacheprovider -q tests/gpu $(ARGS) & running="$$running $$!"; \
	done; \
	for one in $$running; do wait $$one; code=$$?; [ $$code = 0 ] || [ $$code = 5 ] || bad=1; done; \
	exit $${bad:-0}

bench: $(READY)
	$(BIN)/scaseg bench $(ARGS)

# The generator comes with this target alone: tests and training do without it.
$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $(DOCS_READY)

docs: $(DOCS_READY)
	$(BIN)/python docs/site/build.py

# Tables, plots and the marked places of pages, from the CSVs in docs/results; ARGS=--check looks only
results: $(READY)
	$(BIN)/python docs/results/build.py $(ARGS)

# Wheel and source archive in dist/, the same bytes wherever the commit is checked out
dist: $(READY)
	$(BIN)/python .ci/dist.py

# Known vulnerabilities of the pinned versions; asks a public service, so it is no part of CI.
# --strict: what could not be looked up is a failure, not "no known vulnerabilities found"
audit:
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	build/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict $(ARGS)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
