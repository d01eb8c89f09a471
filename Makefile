# Every target sets up what it needs by itself: a .venv in the checkout, pinned by constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup check test test-gpu bench clean

setup: $(READY)

# constraints.txt pins torch to a version with a CPU build: unconstrained, pip may fetch gigabytes
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[data,dev,log]"
	touch $(READY)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One process a core, one thread each: more threads than cores would fight over them.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not gpu" -n auto --dist worksteal $(ARGS)

# No network and no installation: whatever Python and torch are there.
test-gpu:
	PYTHONPATH=src $(PYTHON) -m pytest -c /dev/null --rootdir . -p no:cacheprovider tests/gpu $(ARGS)

bench: $(READY)
	$(BIN)/scaseg bench $(ARGS)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
