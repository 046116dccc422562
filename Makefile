# Every target sets up what it needs. `make demo` and `make test` are all a newcomer has to know.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test lint format bench bench-release bench-allocation bench-calibration clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python -m dpglm.demo

# Compiled programs are kept beside the environment, so that a second run is quicker.
test: export JAX_COMPILATION_CACHE_DIR = $(CURDIR)/$(VENV)/compiled
test: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS = 0.5
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: bench-release bench-allocation

bench-release: $(STAMP)
	$(BIN)/python benchmarks/release_speed.py

bench-allocation: $(STAMP)
	$(BIN)/python benchmarks/allocation_gain.py

bench-calibration: $(STAMP)
	$(BIN)/python benchmarks/calibration.py --cells all
	$(BIN)/python benchmarks/calibration.py --summary

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
