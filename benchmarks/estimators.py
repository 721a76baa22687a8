"""Estimators of matrixdp, diffprivlib and OpenDP on the same splits, features and public bounds.

Run with ``make benchmark-estimators``; the folder ``MATRIXDP_DATA`` must have MNIST and Adult.
``--task NAME`` runs one task of estimator_tasks.py, ``--save`` writes
``results/estimators_NAME.csv`` anew after each method, ``--folder`` names where arrays are kept and
read again: features of MNIST take some minutes. Every fit of ours is a real release through the
public interface.

Peers run in environments of their own, as processes that are stopped after a time limit; what did
not run is in the table with the reason. Their guarantees are pure epsilon, ours have
``delta = 1e-5``: a weaker promise, which takes less noise in many dimensions.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from estimator_peers import METHODS
from estimator_scores import score
from estimator_tasks import TASKS, Task
from saved import RESULTS, commit, processor
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from matrixdp.estimators import (
    PrivateLinearDiscriminantAnalysis,
    PrivateLogisticRegression,
    PrivatePCA,
    PrivateRidge,
    PrivateRidgeClassifier,
)

ROOT = RESULTS.parent
EPSILONS = (1.0, 0.1, 10.0)
DELTA = 1e-5
RUNS = 3
_PEER_SECONDS = 100.0  # for all runs of one peer at one epsilon
_ENVIRONMENTS = {"diffprivlib": ".venv-diffprivlib", "opendp": ".venv-opendp"}
_COLUMNS = ("method", "relation", "epsilon", "delta", "mean", "least", "largest", "runs", "note")


@dataclass(frozen=True)
class Cell:
    """The scores of a method at one epsilon, or why there are none."""

    method: str
    relation: str
    epsilon: str
    delta: str
    scores: tuple[float, ...]
    note: str = ""

    def row(self) -> list[str]:
        """Return a line of the table."""
        figures = ["", "", ""]
        if self.scores:
            mean = sum(self.scores) / len(self.scores)
            figures = [f"{figure:.4g}" for figure in (mean, min(self.scores), max(self.scores))]
        return [
            *(self.method, self.relation, self.epsilon, self.delta),
            *(*figures, str(len(self.scores)), self.note),
        ]


def without_noise(task: Task) -> dict[str, Any]:
    """Return scikit-learn's estimators, which are not private."""
    if task.kind == "classes":
        return {
            "logistic regression": LogisticRegression(max_iter=200),
            "ridge": RidgeClassifier(),
            "linear discriminant": LinearDiscriminantAnalysis(),
        }
    if task.kind == "numbers":
        return {"ridge": Ridge()}
    return {"principal components": PCA(task.components)}


def ours(task: Task, epsilon: float, relation: str) -> dict[str, Callable[[], Any]]:
    """Return makers of our estimators, with their defaults and the public bounds of a task."""
    common: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "neighbouring": relation}
    if task.kind == "components":
        return {
            "principal components": lambda: PrivatePCA(
                task.components, data_norm=task.norm, **common
            )
        }
    # One column says more by its range, from which it is centred.
    by_norm = task.x_train.shape[1] > 1
    common |= {"data_norm": task.norm} if by_norm else {"bounds": task.x_range}
    if task.kind == "numbers":
        return {"ridge": lambda: PrivateRidge(target_bounds=task.y_range, **common)}
    common["classes"] = range(int(task.y_test.max()) + 1)
    return {
        "logistic regression": lambda: PrivateLogisticRegression(**common),
        "ridge": lambda: PrivateRidgeClassifier(**common),
        "linear discriminant": lambda: PrivateLinearDiscriminantAnalysis(**common),
    }


def fitted_score(task: Task, model: Any) -> float:
    """Fit a model and score it on the test records."""
    model.fit(task.x_train, task.y_train if len(task.y_train) else None)
    return score(task.kind, model, task.x_test, task.y_test)


def peers_of(task: Task) -> list[str]:
    """Return the methods of other libraries that are for this kind of task."""
    return {
        "classes": ["diffprivlib_logistic"],
        "numbers": ["diffprivlib_linear", "opendp_theil_sen"],
        "components": ["diffprivlib_pca", "opendp_pca"],
    }[task.kind]


def peer_cell(method: str, task: Task, path: Path, epsilon: float) -> Cell:
    """Run a peer in its environment, and keep the scores it had when it ended or was stopped."""
    package = METHODS[method][0]
    python = ROOT / _ENVIRONMENTS[package] / "bin" / "python"
    name = method.replace("_", " ")

    def cell(scores: tuple[float, ...], note: str, version: str = package) -> Cell:
        said = name.replace(package, version, 1)
        return Cell(said, "replace", f"{epsilon:g}", "0", scores, note)

    if method == "opendp_theil_sen" and task.x_train.shape[1] > 1:
        return cell((), "takes one column only")
    if not python.exists():
        return cell((), "not installed")
    script = str(Path(__file__).with_name("estimator_peers.py"))
    command = [str(python), script, method, str(path), f"{epsilon:g}", str(RUNS)]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=_PEER_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        lines = (late.stdout or b"").decode().split("\n")[:-1]
        note = f"stopped after {_PEER_SECONDS:g} s"
    else:
        lines = done.stdout.split("\n")[:-1]
        note = "" if done.returncode == 0 else (done.stderr.strip().split("\n")[-1])[:120]
    if not lines:
        return cell((), note)
    return cell(tuple(map(float, lines[1:])), note, lines[0])


def cells(task: Task, path: Path) -> Iterator[Cell]:
    """Return the scores of every method, each as soon as it is there."""
    for epsilon in EPSILONS:
        for relation in ("replace", "add-remove"):
            for name, made in ours(task, epsilon, relation).items():
                # The easier relation is shown for the most accurate classifier only.
                if relation == "add-remove" and name in {"ridge", "linear discriminant"}:
                    continue
                scores = tuple(fitted_score(task, made()) for _ in range(RUNS))
                delta = f"{DELTA:g}"
                yield Cell(f"matrixdp {name}", relation, f"{epsilon:g}", delta, scores)
    version = f"scikit-learn {metadata.version('scikit-learn')}"
    for name, model in without_noise(task).items():
        yield Cell(f"{version} {name}", "", "", "", (fitted_score(task, model),), "not private")
    for method in peers_of(task):
        for epsilon in EPSILONS:
            yield peer_cell(method, task, path, epsilon)


def run(name: str, folder: Path, *, save: bool) -> None:
    """Run a task, print its table, and keep it if asked to."""
    provenance, start = [["commit", commit()], ["processor", processor()]], time.perf_counter()
    path = folder / f"{name}.npz"
    if not path.exists():
        TASKS[name]().save(path)
    task = Task.load(path)
    print(f"\n{task.title}: {len(task.x_train):,} records of {task.x_train.shape[1]} features")
    rows = [[*line, *[""] * (len(_COLUMNS) - len(line))] for line in provenance]
    for cell in cells(task, path):
        rows.append(cell.row())
        print(f"{time.perf_counter() - start:6.0f} s  " + "  ".join(cell.row()), flush=True)
        if save:
            with (RESULTS / f"estimators_{name}.csv").open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([_COLUMNS, *rows])


def main() -> int:
    """Run one task or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=TASKS, action="append")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # of solvers without noise
    with tempfile.TemporaryDirectory() as temporary, threadpool_limits(limits=1):
        for name in arguments.task or TASKS:
            run(name, arguments.folder or Path(temporary), save=arguments.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
