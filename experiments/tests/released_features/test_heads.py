"""Heads of released rows: what they are trained on, and what they are tested on."""

from pathlib import Path

import pytest
import torch

from matrixdp_experiments.grid.tasks import RecordsTask
from matrixdp_experiments.released_features import heads
from matrixdp_experiments.released_features.cells import (
    FeatureRun,
    Method,
    Selection,
    feature_run,
    selected_cells,
)


def run_of(method: Method, epsilon: float, seed: int = 0) -> FeatureRun:
    """Return a run on the random network of the toy, which needs no weights."""
    wanted = Selection(
        datasets=["digits"],
        networks=["random"],
        protocols=["exact"],
        clips=["public"],
        methods=[method],
        mechanisms=["imgm"],
        epsilons=[epsilon],
        seeds=[seed],
    )
    (cell,) = selected_cells(wanted)
    run = feature_run(cell)
    assert run is not None
    return run


def task_of(run: FeatureRun, folder: Path, monkeypatch: pytest.MonkeyPatch) -> RecordsTask:
    """Return what a head would be trained and tested on."""
    found: list[RecordsTask] = []

    def keep(task: RecordsTask, *_: object, **__: object) -> None:
        found.append(task)

    monkeypatch.setattr(heads, "train_shuffled", keep)
    heads.train_head(folder, run)
    return found[0]


def test_test_rows_lose_the_directions_that_shrinking_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(run_of("shrunk", 1000.0), tmp_path, monkeypatch)
    released, tested = task.data[0].double(), task._judged[0].double()
    _, sizes, right = torch.linalg.svd(released, full_matrices=False)
    dropped = right[sizes < 1e-4 * sizes[0]]
    # Some directions stand above the noise and some do not, so that the test can fail.
    assert 0 < len(dropped) < released.shape[1]
    assert float((tested @ dropped.T).norm()) < 1e-4 * float(tested.norm())
    # What is left of a row without noise is of the size of what was released.
    assert 0.3 < float(tested.norm(dim=1).mean() / released.norm(dim=1).mean()) < 3.0


def test_a_head_answers_one_class_where_nothing_stands_above_the_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Untrained weights must not classify: their answers would not come from what was released."""
    # The noise of about one seed in six has a singular value above the edge of large matrices.
    task = task_of(run_of("shrunk", 0.01, seed=1), tmp_path, monkeypatch)
    assert not task.data[0].any()
    assert len(task.model(task._judged[0]).argmax(1).unique()) == 1


def test_test_rows_of_other_heads_are_clipped_rows_without_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for method in ("rows", "projected"):
        task = task_of(run_of(method, 10.0), tmp_path, monkeypatch)
        size = float(task._judged[0].norm(dim=1).max())
        least = float(task.data[0].norm(dim=1).max()) / size
        # The longest test row has norm 1; noisy rows are far longer, unless they are projected.
        assert least == pytest.approx(1.0) if method == "projected" else least > 5.0
        assert float(task.data[0].square().mean()) == pytest.approx(1.0, rel=1e-5)
