# Everything sets itself up: a bare machine needs Python 3.11 or later and make.
PYTHON ?= python3
CORE := .venv/.core-installed
DEV := .venv/.dev-installed
BARE := .venv-core/.installed
CALIBRATION_BENCH := .venv-accounting/.installed
NOISE_BENCH := .venv-opendp/.installed
WORKLOAD_BENCH := .venv-jax/.installed
TRAINING_BENCH := .venv-opacus/.installed
ESTIMATOR_BENCH := .venv-diffprivlib/.installed
CLAIMS_BENCH := .venv-claims/.installed
DOCS := .venv/.docs-installed
DIST := .venv-dist/.installed
NOTEBOOKS := .venv-notebooks/.installed
# make benchmark SAVE=--save keeps the figures in results/, which docs/benchmarks.md shows.
SAVE ?=
INSTALL := -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Tests share the cores by processes; workers that are done take over what others have left.
PYTEST := -m pytest --numprocesses auto --dist worksteal
# One thread for each process: several on every core wait for each other most of the time.
docs docs-test test test-thorough test-crashes test-processors core-test: export OMP_NUM_THREADS = 1
# What rests on the digits of BLAS and of numpy's own loops.
SENSITIVE := tests/baselines tests/covariance tests/estimators tests/files tests/mechanisms tests/postprocess \
	tests/privacy/loss tests/queries \
	tests/sensitivity tests/workloads

.PHONY: demo dist docs docs-test test test-thorough test-crashes test-processors core-test lint types format \
	figures notebooks benchmark benchmark-accountants benchmark-bounds benchmark-claims benchmark-dask benchmark-estimators \
	benchmark-gpu-noise benchmark-ledger benchmark-marginals \
	benchmark-noise \
	benchmark-postprocess benchmark-queries benchmark-ranks benchmark-sizes benchmark-start-up benchmark-training \
	benchmark-workloads noise-statistics clean
.DELETE_ON_ERROR:

demo: $(CORE)
	.venv/bin/python -m matrixdp demo

test: $(DEV)
	.venv/bin/python $(PYTEST)

# What takes longer and mostly finds the same faults.
test-thorough: $(DEV)
	.venv/bin/python $(PYTEST) -m thorough

# Processes that die in the middle of a release, some hundreds on each database of ledgers. The seed
# is printed first, and the figures at the end.
test-crashes: $(DEV)
	MATRIXDP_CRASHES=500 .venv/bin/python -m pytest -s tests/ledger/test_crashes.py

# The last digits differ between processors: once as on an old one without fused multiply-add, once
# as on another one with threads in BLAS. Nothing may rest on them.
test-processors: $(DEV)
	OPENBLAS_CORETYPE=Prescott NPY_DISABLE_CPU_FEATURES="X86_V3 X86_V4" \
		.venv/bin/python $(PYTEST) $(SENSITIVE)
	OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=2 \
		.venv/bin/python $(PYTEST) $(SENSITIVE)

# The core must work without a single extra, and without the experiments: the same tests, those that
# need more skip.
core-test: $(BARE)
	.venv-core/bin/python $(PYTEST)

# Wheel and source distribution in dist/, built twice with equal digests and tried in an empty
# environment; digests and a bill of materials in build/.
dist: $(DIST)
	.venv-dist/bin/python release/dist.py

# The documentation site, in build/docs. From the beginning each time: so a page that is no more
# leaves nothing behind. A warning is an error.
docs: $(DOCS)
	rm -rf build/docs build/doctrees
	.venv/bin/python -m sphinx -c docs -d build/doctrees --fail-on-warning --keep-going --nitpicky \
		--quiet . build/docs

# Its links, its reference, and what a browser shows of it.
docs-test: docs
	.venv/bin/python -m pytest -m site tests/website

lint: $(DEV)
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .

types: $(DEV)
	.venv/bin/python -m mypy

format: $(DEV)
	.venv/bin/python -m ruff check --fix .
	.venv/bin/python -m ruff format .

# The picture of the README; the curves of docs/comparison.md and their numbers; the figures of
# docs/postprocess.md and docs/estimators_on_data.md, and the page docs/benchmarks.md, from numbers that
# are saved.
figures: $(CORE)
	.venv/bin/python -m matrixdp demo --folder docs/figures/demo
	.venv/bin/python benchmarks/comparison_curves.py
	.venv/bin/python benchmarks/shrinkage_figure.py
	.venv/bin/python benchmarks/estimators_figure.py
	.venv/bin/python benchmarks/page.py

# The notebooks in examples/, from the scripts beside them.
notebooks: $(NOTEBOOKS)
	.venv-notebooks/bin/python release/notebooks.py

benchmark: $(CALIBRATION_BENCH)
	.venv-accounting/bin/python benchmarks/calibration_speed.py $(SAVE)
	.venv-accounting/bin/python benchmarks/calibration_safety.py $(SAVE)

# Some minutes: peers that do not finish are stopped.
benchmark-accountants: $(CALIBRATION_BENCH)
	.venv-accounting/bin/python benchmarks/accountants.py $(SAVE)

benchmark-claims: $(CLAIMS_BENCH)
	.venv-claims/bin/python benchmarks/other_claims.py $(SAVE)

benchmark-noise: $(DEV) $(NOISE_BENCH)
	.venv/bin/python benchmarks/release_speed.py $(SAVE)
	.venv-opendp/bin/python benchmarks/noise_speed.py $(SAVE)
	.venv-opendp/bin/python benchmarks/noise_memory.py $(SAVE)

# What users wait for before anything happens.
benchmark-start-up: $(BARE)
	.venv-core/bin/python benchmarks/start_up.py $(SAVE)

# PostgreSQL takes part if a server is installed.
benchmark-ledger: $(DEV)
	PYTHONPATH=tests .venv/bin/python benchmarks/ledger_payments.py $(SAVE)

benchmark-dask: $(DEV)
	.venv/bin/python benchmarks/dask_release.py $(SAVE)
	.venv/bin/python benchmarks/dask_queries.py $(SAVE)

# Errors before and after; `make figures` draws what is saved.
benchmark-postprocess: $(DEV)
	.venv/bin/python benchmarks/shrinkage.py $(SAVE)

# A million rows of 256 numbers: 1 GiB, and as much again for the float64 products.
benchmark-queries: $(DEV)
	.venv/bin/python benchmarks/query_speed.py --rows 1000000 $(SAVE)

# HDMM's optimiser takes part if it is on PYTHONPATH: benchmarks/hdmm_peer.py says how.
benchmark-workloads: $(WORKLOAD_BENCH)
	.venv-jax/bin/python benchmarks/workload_strategies.py $(SAVE)

# Two gigabytes of tables, from fifty thousand records.
benchmark-marginals: $(DEV)
	.venv/bin/python benchmarks/marginals.py $(SAVE)

# On the CPU, or on a GPU if there is one.
benchmark-training: $(TRAINING_BENCH)
	.venv-opacus/bin/python benchmarks/training_speed.py $(SAVE)

# Private steps over plain ones on two ranks, beside the same ratio in one process.
benchmark-ranks: $(DEV)
	.venv/bin/python benchmarks/training_ranks.py $(SAVE)

# On a GPU.
benchmark-gpu-noise: $(DEV)
	.venv/bin/python benchmarks/gpu_noise.py $(SAVE)

# MNIST and Adult must be in MATRIXDP_DATA. Half an hour or so: peers that do not finish are stopped.
benchmark-estimators: $(DEV) $(ESTIMATOR_BENCH) $(NOISE_BENCH)
	.venv/bin/python benchmarks/estimators.py $(SAVE)

# CTG is the path of ctg.csv, of which the script says more.
benchmark-bounds: $(DEV)
	.venv/bin/python benchmarks/estimator_bounds.py $(CTG) $(SAVE)

# Ten minutes or so.
benchmark-sizes: $(DEV)
	.venv/bin/python benchmarks/workload_sizes.py $(SAVE)

# A billion samples: some minutes.
noise-statistics: $(DEV)
	PYTHONPATH=tests .venv/bin/python benchmarks/noise_statistics.py

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "matrixdp needs Python 3.11 or later; name one: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv .venv

$(CORE): .venv/bin/python pyproject.toml constraints.txt
	.venv/bin/python $(INSTALL) --editable .
	@touch $@

$(DEV): .venv/bin/python pyproject.toml experiments/pyproject.toml constraints.txt
	.venv/bin/python $(INSTALL) --editable '.[dev,fast,train]' --editable experiments
	@touch $@ $(CORE)

$(DOCS): $(DEV)
	.venv/bin/python $(INSTALL) --editable '.[docs]'
	@touch $@

$(BARE): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-core
	.venv-core/bin/python $(INSTALL) --editable . hypothesis pytest pytest-xdist python-flint
	@touch $@

$(CALIBRATION_BENCH): pyproject.toml constraints.txt benchmarks/requirements-accounting.txt
	$(PYTHON) -m venv .venv-accounting
	.venv-accounting/bin/python $(INSTALL) --editable . --requirement benchmarks/requirements-accounting.txt
	@touch $@

$(NOISE_BENCH): pyproject.toml constraints.txt benchmarks/requirements-opendp.txt
	$(PYTHON) -m venv .venv-opendp
	.venv-opendp/bin/python $(INSTALL) --editable '.[fast]' --requirement benchmarks/requirements-opendp.txt
	@touch $@

$(WORKLOAD_BENCH): pyproject.toml constraints.txt benchmarks/requirements-workloads.txt
	$(PYTHON) -m venv .venv-jax
	.venv-jax/bin/python $(INSTALL) --editable . --requirement benchmarks/requirements-workloads.txt
	@touch $@

$(TRAINING_BENCH): pyproject.toml constraints.txt benchmarks/requirements-training.txt
	$(PYTHON) -m venv .venv-opacus
	.venv-opacus/bin/python $(INSTALL) --editable '.[train]' --requirement benchmarks/requirements-training.txt
	@touch $@

# Not constrained: diffprivlib needs an older scikit-learn than the one that is tested with.
$(CLAIMS_BENCH): pyproject.toml benchmarks/requirements-claims.txt
	$(PYTHON) -m venv .venv-claims
	.venv-claims/bin/python -m pip install --quiet --disable-pip-version-check --editable . --requirement benchmarks/requirements-claims.txt
	@touch $@

# Without matrixdp: only its script for peers runs here, which reads arrays and prints scores. Not
# constrained: it needs an older scikit-learn than the one that is tested with.
$(ESTIMATOR_BENCH): benchmarks/requirements-diffprivlib.txt
	$(PYTHON) -m venv .venv-diffprivlib
	.venv-diffprivlib/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/requirements-diffprivlib.txt
	@touch $@

# Builds nothing itself but the distributions: matrixdp is not installed here.
$(DIST): release/requirements.txt
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	.venv-dist/bin/python -m pip install --quiet --disable-pip-version-check --requirement release/requirements.txt
	@touch $@

$(NOTEBOOKS): pyproject.toml constraints.txt release/requirements-notebooks.txt
	$(PYTHON) -m venv .venv-notebooks
	.venv-notebooks/bin/python $(INSTALL) --editable '.[fast,sklearn,train]' --requirement release/requirements-notebooks.txt
	@touch $@

clean:
	rm -rf build dist .venv .venv-core .venv-accounting .venv-opendp .venv-jax .venv-opacus .venv-diffprivlib .venv-dist .venv-notebooks demo-output
