"""A budget finds its root once; nothing that is made for it finds one again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp import (
    IMGM,
    Budget,
    FrobeniusBall,
    Guarantee,
    MatrixMechanism,
    PrivacyFilter,
    RowBounds,
    SymmetricBall,
)
from matrixdp.cli.main import main
from matrixdp.privacy import solve
from matrixdp.workloads import Prefix

SETS: dict[str, Any] = {
    "ball": FrobeniusBall(1.0, neighbouring="replace"),
    "symmetric": SymmetricBall(1.0, neighbouring="replace"),
    "rows": RowBounds([1.0, 2.0, 3.0], neighbouring="replace"),
}


@pytest.fixture
def roots(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that grows with every root that is found."""
    found: list[None] = []
    iterate = solve._iterate

    def spy(*arguments: Any) -> Any:
        found.append(None)
        return iterate(*arguments)

    monkeypatch.setattr(solve, "_iterate", spy)
    return found


@pytest.mark.parametrize("members", SETS.values(), ids=SETS)
def test_a_release_finds_the_root_of_its_budget_and_no_other(
    members: Any, roots: list[None]
) -> None:
    release = IMGM(members, Budget(1.0, 1e-5)).release(np.eye(3))
    assert len(roots) == 1
    assert release.guarantee.epsilon == 1.0


def test_a_share_and_what_is_made_for_it_find_one_root(roots: list[None]) -> None:
    share = Budget.from_mu(0.5, delta=1e-6)
    IMGM(SETS["ball"], share).release(np.eye(3))
    _ = PrivacyFilter(share, neighbouring="replace").guarantee
    assert len(roots) == 1


def test_a_guarantee_that_is_computed_from_mu_is_not_computed_again(roots: list[None]) -> None:
    claim = Guarantee.of_mu(0.5, delta=1e-6, neighbouring="replace")
    assert len(roots) == 1
    claim.for_group(3)
    assert len(roots) == 2


@pytest.mark.parametrize("budget", [["--epsilon", "1"], ["--mu", "0.3"]])
def test_the_command_finds_one_root(tmp_path: Path, roots: list[None], budget: list[str]) -> None:
    np.save(tmp_path / "in.npy", np.eye(3))
    arguments = [str(tmp_path / "in.npy"), str(tmp_path / "out.npy"), "--delta", "1e-5"]
    given = ["--sensitivity", "1", "--neighbouring", "replace"]
    assert main(["release", *arguments, *given, *budget]) == 0
    assert len(roots) == 1


@pytest.mark.parametrize("name", ["out.npy", "out.npz", "out.zarr"])
def test_verify_finds_one_root(tmp_path: Path, roots: list[None], name: str) -> None:
    target, budget = tmp_path / name, Budget(1.0, 1e-5)
    if target.suffix == ".npz":
        mechanism = MatrixMechanism(Prefix(4), budget, neighbouring="replace")
        mechanism.release([1, 2, 3, 4]).save(target)
    elif target.suffix == ".zarr":
        arrays = pytest.importorskip("dask.array", reason="Dask writes folders of chunks")
        IMGM(SETS["ball"], budget).release_to(target, arrays.ones((4, 4)))
    else:
        IMGM(SETS["ball"], budget).release(np.eye(4)).save(target)
    roots.clear()
    assert main(["verify", str(target)]) == 0
    assert len(roots) == 1
