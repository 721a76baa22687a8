"""Examples of modules are run, except of those whose extra is missing."""

from importlib.util import find_spec

collect_ignore_glob = []
if find_spec("sklearn") is None:
    collect_ignore_glob.append("src/matrixdp/estimators/*")
if any(find_spec(name) is None for name in ("dask", "distributed", "zarr")):
    collect_ignore_glob.append("src/matrixdp/distributed/*")
if find_spec("psycopg") is None or find_spec("sqlalchemy") is None:
    collect_ignore_glob.append("src/matrixdp/ledger/stores/postgresql.py")
if find_spec("dask") is None:
    collect_ignore_glob.append("src/matrixdp/distributed/*")
if find_spec("torch") is None:
    collect_ignore_glob += [
        "src/matrixdp/training/*",
        "src/matrixdp/mechanisms/tensors.py",
        "src/matrixdp/noise/application/tensors.py",
        "src/matrixdp/noise/kernels/cuda/[ckl]*.py",
    ]
elif find_spec("triton") is None:
    # GPU kernels; builds of PyTorch for the CPU come without their compiler.
    collect_ignore_glob += [
        "src/matrixdp/training/kernels/fused_*",
        "experiments/src/matrixdp_experiments/models/fused_*",
    ]
if find_spec("torch") is None or find_spec("matrixdp_experiments") is None:
    collect_ignore_glob.append("experiments/*")
