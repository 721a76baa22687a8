"""Fits one estimator of another library to a task; runs in that library's environment.

``python estimator_peers.py METHOD TASK.npz EPSILON RUNS`` prints a version, then a score for each
run, each as soon as it is there. It imports neither matrixdp nor the library of another method.
Bounds are those of the task, public as for everyone.
"""

import sys
import warnings
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
from estimator_scores import score

Arrays = dict[str, Any]


def diffprivlib_logistic(task: Arrays, epsilon: float) -> Any:
    """Objective perturbation, one class against the rest; pure epsilon."""
    from diffprivlib.models import LogisticRegression  # noqa: PLC0415

    model = LogisticRegression(epsilon=epsilon, data_norm=float(task["norm"]))
    return model.fit(task["x_train"], task["y_train"])


def diffprivlib_linear(task: Arrays, epsilon: float) -> Any:
    """Functional mechanism: noise on the coefficients of the squared loss; pure epsilon."""
    from diffprivlib.models import LinearRegression  # noqa: PLC0415

    ranges = (tuple(task["x_range"]), tuple(task["y_range"]))
    model = LinearRegression(epsilon=epsilon, bounds_X=ranges[0], bounds_y=ranges[1])
    return model.fit(task["x_train"], task["y_train"])


def diffprivlib_pca(task: Arrays, epsilon: float) -> Any:
    """Eigenvectors by the exponential mechanism, half of epsilon for the mean; pure epsilon."""
    from diffprivlib.models import PCA  # noqa: PLC0415

    model = PCA(
        int(task["components"]),
        epsilon=epsilon,
        data_norm=float(task["norm"]),
        bounds=tuple(task["x_range"]),
    )
    return model.fit(task["x_train"])


def opendp_pca(task: Arrays, epsilon: float) -> Any:
    """Eigenvalues by Laplace noise, eigenvectors one by one; pure epsilon.

    For its mean it clips rows to ``row_norm`` in the l1 norm, which is longer than the Euclidean
    one: with the bound of the others the mean would be far off. It gets twice that bound.
    """
    import opendp.prelude as dp  # noqa: PLC0415

    dp.enable_features("contrib", "floating-point", "honest-but-curious")
    records = np.asarray(task["x_train"], dtype=np.float64)
    model = dp.sklearn.decomposition.PCA(
        epsilon=epsilon,
        row_norm=2.0 * float(task["norm"]),
        n_samples=len(records),
        n_features=records.shape[1],
        n_components=int(task["components"]),
        n_changes=2,  # one record removed and one added, by the map of its measurement
    )
    return model.fit(records)


def opendp_theil_sen(task: Arrays, epsilon: float) -> Any:
    """Medians of slopes between random pairs, for one column; pure epsilon."""
    import opendp.prelude as dp  # noqa: PLC0415

    dp.enable_features("contrib", "floating-point", "honest-but-curious", "idealized-numerics")

    def made(scale: float) -> Any:
        return dp.sklearn.linear_model.LinearRegression(
            dp.max_divergence(),
            x_bounds=[tuple(map(float, task["x_range"]))],
            y_bounds=tuple(map(float, task["y_range"])),
            scale=scale,
        )

    # To replace a record is to remove one and to add one: a distance of 2.
    scale = dp.binary_search(
        lambda scale: made(scale).measurement.map(2) <= epsilon, bounds=(1e-3, 1e5)
    )
    return made(scale).fit(task["x_train"], task["y_train"])


METHODS: dict[str, tuple[str, Callable[[Arrays, float], Any]]] = {
    "diffprivlib_logistic": ("diffprivlib", diffprivlib_logistic),
    "diffprivlib_linear": ("diffprivlib", diffprivlib_linear),
    "diffprivlib_pca": ("diffprivlib", diffprivlib_pca),
    "opendp_pca": ("opendp", opendp_pca),
    "opendp_theil_sen": ("opendp", opendp_theil_sen),
}


def main() -> None:
    """Fit and score as often as asked."""
    method, path, epsilon, runs = sys.argv[1:]
    package, fit = METHODS[method]
    print(f"{package} {metadata.version(package)}", flush=True)
    warnings.simplefilter("ignore")  # that the noise is not seeded, and solvers that stop early
    with np.load(path) as file:
        task = {name: file[name] for name in file.files}
    for _ in range(int(runs)):
        # Copies: some estimators change their input, which would be the next run's.
        model = fit({name: array.copy() for name, array in task.items()}, float(epsilon))
        print(score(str(task["kind"]), model, task["x_test"], task["y_test"]), flush=True)


if __name__ == "__main__":
    main()
