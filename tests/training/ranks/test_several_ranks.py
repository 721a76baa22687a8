"""Ranks as real processes: the bits of one process, refusals on all ranks, and neighbours."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch

from training.ranks.programs import QUICK, WAYS
from training.ranks.running import run

# Within float32's rounding of weights, and what fixed point takes off the clip norm.
NEAR = 1e-6
RECORDS = torch.randn(4, 5, generator=torch.Generator().manual_seed(1)) * 2.0


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Run two processes once for all quick tests, as starting them takes seconds."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.save(RECORDS, folder / "records.pt")
    return run("quick", 2, folder)


def test_two_ranks_train_as_one_process_does(found: list[dict[str, Any]]) -> None:
    check_ways(found, QUICK)


def check_ways(found: list[dict[str, Any]], ways: Iterable[str]) -> None:
    for name in ways:
        one = WAYS[name](None)
        for rank in found:
            assert torch.equal(rank[name], found[0][name])
            assert (rank[name] - one).abs().max() <= (0.0 if name.startswith("exact") else NEAR)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("plan", "rank 1 has another plan than rank 0"),
        ("mode", "rank 1 has another mode than rank 0, exact and not fast"),
        ("seed", "rank 1 has another seed than rank 0, 1 and not None"),
        ("model", "rank 1 has another model than rank 0"),
        ("layout", "rank 1 has another model than rank 0"),
        ("shapes", "rank 1 has another list of layers with a covariance than rank 0"),
        ("noise", "rank 1 has another division of the noise into shards than rank 0"),
        ("data", "rank 1 has another order of the records than rank 0"),
        ("users", "rank 1 has another order of the records than rank 0"),
        ("split", "rank 1 has another order of the records than rank 0"),
        ("optimizer", "rank 1 has another value of the parameters or buffers than rank 0"),
        ("weights", "rank 1 has another value of the parameters or buffers than rank 0"),
    ],
)
def test_ranks_that_differ_are_refused_on_all_ranks(
    found: list[dict[str, Any]], what: str, said: str
) -> None:
    assert [rank[what].startswith(f"InvalidParameterError: {said}") for rank in found] == [True] * 2


def test_what_is_wrong_on_one_rank_is_refused_on_all(found: list[dict[str, Any]]) -> None:
    first, last = found
    for what, said in {
        "records": "the data has 39",
        "nothing to train": "the model has no",
    }.items():
        assert last[what].startswith(f"InvalidParameterError: {said}")
        expected = f"RankError: rank 1 has stopped: InvalidParameterError: {said}"
        assert first[what].startswith(expected)


@pytest.mark.parametrize("what", ["elsewhere", "checkpoint", "trainings"])
def test_ranks_at_different_points_go_no_further(found: list[dict[str, Any]], what: str) -> None:
    for rank in found:
        assert rank[what].startswith("RankError: rank ")
        assert "the same number of times" in rank[what]


def test_losses_that_fail_on_one_rank_can_be_run_again_and_quote_no_record(
    found: list[dict[str, Any]],
) -> None:
    first, last = found
    assert last["losses"].startswith("ValueError: secret")
    assert first["losses"] == "RankError: rank 1 has stopped: ValueError"
    assert first["moved"]
    assert last["moved"]


def test_nothing_is_drawn_before_the_first_rank_has_spent(found: list[dict[str, Any]]) -> None:
    first, last = found
    assert first["unwritable"].startswith("StorageError")
    assert last["unwritable"].startswith("RankError: rank 0 has stopped: StorageError")
    assert [rank["drawn"] for rank in found] == [[], []]


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_a_record_moves_the_sum_by_its_clip_norm_at_most(
    found: list[dict[str, Any]], mode: str
) -> None:
    """Neighbours through the program, on whichever rank the record is."""
    for rank in found:
        whole = rank["sums"][None, mode]
        moved = [float((whole - rank["sums"][one, mode]).norm()) for one in (0, len(RECORDS) - 1)]
        # Longer gradients than the clip norm of 1 move the sum by nearly as much.
        assert all(0.99999 < distance <= 1.0 for distance in moved)


@pytest.mark.thorough
@pytest.mark.parametrize("size", [2, 4])
def test_every_way_to_train(tmp_path: Path, size: int) -> None:
    found = run("equal", size, tmp_path)
    check_ways(found, WAYS)
    for rank in found:
        assert torch.equal(rank["ZeRO"], rank["fast, Adam"])
        assert torch.equal(rank["noisy"], found[0]["noisy"])
        assert f"{size} ranks" in rank["guarantee"]
        assert "An experiment" not in rank["guarantee"]
    # Noise of the operating system is another one in every run.
    assert not torch.equal(found[0]["noisy"], found[0]["exact, shaped"])
