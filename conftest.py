"""Which modules have their examples run: not those whose extra is missing."""

from importlib.util import find_spec

collect_ignore_glob = []
if find_spec("sklearn") is None:
    collect_ignore_glob.append("src/matrixdp/estimators/*")
if find_spec("torch") is None:
    collect_ignore_glob += ["src/matrixdp/training/*", "src/matrixdp/experiments/models/*"]
    collect_ignore_glob += [
        f"src/matrixdp/experiments/{name}.py"
        for name in (
            *("__main__", "asked", "digits", "provenance", "runner", "tasks", "training_loops"),
            *("type_one", "type_two", "work"),
        )
    ]
    collect_ignore_glob += [
        f"src/matrixdp/experiments/private_features/{name}.py"
        for name in (
            *("heads", "linear_discriminant", "networks", "parts", "releases", "shrinkage"),
        )
    ]
elif find_spec("triton") is None:
    # GPU kernels; builds of PyTorch for the CPU come without their compiler.
    collect_ignore_glob += [
        "src/matrixdp/training/layers/fused_*",
        "src/matrixdp/experiments/models/fused_*",
    ]
