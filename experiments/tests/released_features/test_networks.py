"""Networks and their heads over several runs: no head may see the features of another network."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from matrixdp.errors import FileFormatError
from matrixdp_experiments.grid.outcomes import AnyRun, outcome_path, read_outcomes
from matrixdp_experiments.grid.runner import Tell, Work
from matrixdp_experiments.grid.runs import Run, run_key
from matrixdp_experiments.released_features import experiment as type_two
from matrixdp_experiments.released_features.cells import (
    FeatureRun,
    Selection,
    feature_run,
    network_run,
    selected_cells,
)
from matrixdp_experiments.released_features.experiment import run_grid
from matrixdp_experiments.released_features.heads import train_head
from matrixdp_experiments.released_features.networks import (
    feature_parts,
    train_network,
    weights_path,
)
from matrixdp_experiments.released_features.parts import new_network
from matrixdp_experiments.released_features.settings import FEATURE_SETTINGS

NETWORK = network_run(FEATURE_SETTINGS["digits"], 0)
HEADS = selected_cells(
    Selection(datasets=["digits"], networks=["public"], methods=["linear"], seeds=[0])
)
MORE = selected_cells(
    Selection(datasets=["digits"], networks=["public"], methods=["corrected"], seeds=[0])
)


@contextmanager
def quiet(_: Sequence[AnyRun]) -> Iterator[Tell]:
    yield lambda _run, failure: None if failure is None else pytest.fail(failure)


def work_in(folder: Path) -> Work:
    return Work(folder=folder, parallel=1, progress=quiet)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[AnyRun]:
    """Let runs end at once, and return them as they end; networks leave weights, as they do."""
    made: list[AnyRun] = []

    def network(folder: Path, run: Run) -> float:
        made.append(run)
        path = weights_path(folder, run)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(new_network(run.dataset).state_dict(), path)
        return 0.8

    def head(_: Path, run: FeatureRun) -> float:
        made.append(run)
        return 0.5

    monkeypatch.setattr(type_two, "train_network", network)
    monkeypatch.setattr(type_two, "train_head", head)
    return made


def test_weights_are_needed_by_unfinished_heads_alone(
    tmp_path: Path, trained: list[AnyRun]
) -> None:
    assert run_grid(HEADS, work_in(tmp_path)).failed == 0
    weights = weights_path(tmp_path, NETWORK)
    weights.unlink()
    before = len(trained)
    assert run_grid(HEADS, work_in(tmp_path)).failed == 0
    assert len(trained) == before
    assert not weights.exists()


@pytest.mark.parametrize("lost", ["weights", "outcome"])
def test_a_network_is_not_trained_again_below_finished_heads(
    lost: str, tmp_path: Path, trained: list[AnyRun]
) -> None:
    assert run_grid(HEADS, work_in(tmp_path)).failed == 0
    outcome = outcome_path(tmp_path / "networks", NETWORK)
    (weights_path(tmp_path, NETWORK) if lost == "weights" else outcome).unlink()
    before = len(trained)
    with pytest.raises(FileFormatError, match=f"5 heads .* that name {run_key(NETWORK)}"):
        run_grid(MORE, work_in(tmp_path))
    assert len(trained) == before
    # The way out that the message names.
    for path in (tmp_path / "runs").glob("*.json"):
        if run_key(NETWORK) in path.read_text():
            path.unlink()
    assert run_grid([*HEADS, *MORE], work_in(tmp_path)).failed == 0
    assert trained[before] == NETWORK
    assert len(trained) == before + 1 + 5 + 4


def test_a_network_without_an_outcome_is_trained_before_its_heads(
    tmp_path: Path, trained: list[AnyRun]
) -> None:
    """It was killed after its weights were written: nothing says how good it is."""
    path = weights_path(tmp_path, NETWORK)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"of the run that was killed")
    assert run_grid(HEADS, work_in(tmp_path)).failed == 0
    assert trained[0] == NETWORK
    assert "head.weight" in torch.load(path, weights_only=True)


def a_head() -> FeatureRun:
    run = feature_run(HEADS[0])
    assert run is not None
    return run


def test_a_head_without_its_network_is_told_so(tmp_path: Path) -> None:
    feature_parts.cache_clear()
    with pytest.raises(FileFormatError, match="run type-two"):
        train_head(tmp_path, a_head())


@pytest.mark.parametrize("content", [b"", b"not weights", b"PK\x03\x04 cut short"])
def test_damaged_weights_are_named(content: bytes, tmp_path: Path) -> None:
    feature_parts.cache_clear()
    path = weights_path(tmp_path, NETWORK)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="does not hold the weights"):
        train_head(tmp_path, a_head())
    # Those of another network.
    torch.save(torch.nn.Linear(2, 2).state_dict(), path)
    with pytest.raises(FileFormatError, match="does not hold the weights"):
        train_head(tmp_path, a_head())


def test_features_are_those_of_the_latest_weights(tmp_path: Path) -> None:
    facts = {name: getattr(NETWORK, name) for name in NETWORK.__struct_fields__}
    path = weights_path(tmp_path, NETWORK)
    found = []
    for steps in (1, 5):
        short = Run(**facts | {"steps": steps})
        train_network(tmp_path, short)
        # As if the same network had been trained on another device.
        path.write_bytes(weights_path(tmp_path, short).read_bytes())
        found.append(feature_parts(tmp_path, "digits", "public", 0).test.inputs)
    assert not torch.equal(*found)


def test_two_files_of_one_run_are_refused(tmp_path: Path, trained: list[AnyRun]) -> None:
    """As after a change of what names a run: the report would show either of them."""
    assert run_grid(HEADS, work_in(tmp_path)).failed == 0
    assert len(trained) == 6
    path = outcome_path(tmp_path, a_head())
    path.with_name("digits-0000000000000000.json").write_bytes(path.read_bytes())
    with pytest.raises(FileFormatError, match=f"does not end in {run_key(a_head())}"):
        read_outcomes(tmp_path, FeatureRun)
