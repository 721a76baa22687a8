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
# make benchmark SAVE=--save keeps the figures in results/, which the README quotes.
SAVE ?=
INSTALL := -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Tests share the cores by processes; workers that are done take over what others have left.
PYTEST := -m pytest --numprocesses auto --dist worksteal
# One thread for each process: several on every core wait for each other most of the time.
test test-thorough test-crashes test-processors core-test: export OMP_NUM_THREADS = 1
# What rests on the digits of BLAS and of numpy's own loops.
SENSITIVE := tests/baselines tests/covariance tests/estimators tests/files tests/mechanisms tests/postprocess \
	tests/privacy/loss tests/queries \
	tests/sensitivity tests/workloads

.PHONY: demo test test-thorough test-crashes test-processors core-test lint types format figures benchmark \
	benchmark-accountants benchmark-estimators benchmark-gpu-noise benchmark-ledger benchmark-marginals \
	benchmark-noise \
	benchmark-postprocess benchmark-queries benchmark-sizes benchmark-start-up benchmark-training \
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

lint: $(DEV)
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .

types: $(DEV)
	.venv/bin/python -m mypy

format: $(DEV)
	.venv/bin/python -m ruff check --fix .
	.venv/bin/python -m ruff format .

# The curves of docs/comparison.md, and the numbers under them; the figure of docs/postprocess.md,
# from numbers that are saved.
figures: $(CORE)
	.venv/bin/python benchmarks/comparison_curves.py
	.venv/bin/python benchmarks/shrinkage_figure.py

benchmark: $(CALIBRATION_BENCH)
	.venv-accounting/bin/python benchmarks/calibration_speed.py $(SAVE)
	.venv-accounting/bin/python benchmarks/calibration_safety.py $(SAVE)

# Some minutes: peers that do not finish are stopped.
benchmark-accountants: $(CALIBRATION_BENCH)
	.venv-accounting/bin/python benchmarks/accountants.py $(SAVE)

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

# On a GPU.
benchmark-gpu-noise: $(DEV)
	.venv/bin/python benchmarks/gpu_noise.py $(SAVE)

# MNIST and Adult must be in MATRIXDP_DATA. Half an hour or so: peers that do not finish are stopped.
benchmark-estimators: $(DEV) $(ESTIMATOR_BENCH) $(NOISE_BENCH)
	.venv/bin/python benchmarks/estimators.py $(SAVE)

# Ten minutes or so.
benchmark-sizes: $(DEV)
	.venv/bin/python benchmarks/workload_sizes.py $(SAVE)

# A thousand million samples: some minutes.
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

# Without matrixdp: only its script for peers runs here, which reads arrays and prints scores. Not
# constrained: it needs an older scikit-learn than the one that is tested with.
$(ESTIMATOR_BENCH): benchmarks/requirements-diffprivlib.txt
	$(PYTHON) -m venv .venv-diffprivlib
	.venv-diffprivlib/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/requirements-diffprivlib.txt
	@touch $@

clean:
	rm -rf .venv .venv-core .venv-accounting .venv-opendp .venv-jax .venv-opacus .venv-diffprivlib demo-output
