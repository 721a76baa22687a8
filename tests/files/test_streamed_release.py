"""Files released in parts: as a release in memory, and none of it if it cannot be stated."""

import os
import secrets
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from matrixdp import (
    IMGM,
    Budget,
    FrobeniusBall,
    InvalidParameterError,
    Isotropic,
    Kronecker,
    Release,
    RowBounds,
    RowBox,
    SymmetricBall,
)
from matrixdp.baselines.gaussian import ClassicGaussian
from matrixdp.covariance import Diagonal
from matrixdp.files.publishing import paid
from matrixdp.files.publishing.streamed_release import release_npy

BUDGET = Budget(1.0, 1e-5)
BALL = FrobeniusBall(1.0, neighbouring="replace")
MECHANISMS = {
    "ball": IMGM(BALL, BUDGET),
    "rows": IMGM(RowBounds([1.0, 0.2, 3.0], neighbouring="replace"), BUDGET),
    "box": IMGM(RowBox([0.1, 5.0, 1.0], neighbouring="replace", weights=[1, 2, 3]), BUDGET),
    "directional": IMGM(BALL, BUDGET, Kronecker(50 * np.eye(3), np.diag([1.0, 2.0, 3.0]))),
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", ["ball", "rows", "box"])
def test_files_are_released_in_parts(name: str, order: str, tmp_path: Path) -> None:
    matrix = np.asarray(np.arange(9.0).reshape(3, 3), order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "in.npy", matrix)
    mechanism = MECHANISMS[name]
    guarantee = release_npy(mechanism, tmp_path / "in.npy", tmp_path / "out.npy")
    release = Release.load(tmp_path / "out.npy")
    assert release.guarantee == guarantee == mechanism.guarantee
    errors = (release.value - matrix) / release.standard_errors()
    assert np.all(np.abs(errors) < 8)
    assert not np.any(errors == 0)
    assert len(list(tmp_path.iterdir())) == 3


class HalfNoise:
    """A mechanism that promises what its noise does not give."""

    sensitivity = BALL
    budget = BUDGET
    covariance = Isotropic(MECHANISMS["ball"].covariance.smallest_singular_value / 2)
    guarantee = MECHANISMS["ball"].guarantee


def test_any_mechanism_with_independent_noise_releases_files(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((3, 3)))
    classic = ClassicGaussian(BALL, Budget(0.5, 1e-5))
    guarantee = release_npy(classic, tmp_path / "in.npy", tmp_path / "out.npy")
    release = Release.load(tmp_path / "out.npy")
    assert release.guarantee == guarantee == classic.guarantee
    assert release.mechanism == "ClassicGaussian"
    false: Any = HalfNoise()
    with pytest.raises(InvalidParameterError, match="the noise gives mu"):
        release_npy(false, tmp_path / "in.npy", tmp_path / "false.npy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npy", "out.npy", "out.npy.json"]


def test_a_file_release_is_written_once_and_the_statement_is_named_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "in.npy", np.zeros((3, 3)))
    (tmp_path / "out.npy").write_text("old")
    opened: list[str] = []
    replaced: list[str] = []
    real_open, real_replace = os.open, Path.replace

    def counted_open(path: Any, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT:
            opened.append(Path(path).name)
        return real_open(path, flags, *mode)

    def counted_replace(path: Path, target: Path) -> Path:
        replaced.append(target.name)
        return real_replace(path, target)

    monkeypatch.setattr(os, "open", counted_open)
    monkeypatch.setattr(Path, "replace", counted_replace)
    release_npy(MECHANISMS["ball"], tmp_path / "in.npy", tmp_path / "out.npy", force=True)
    assert len(opened) == 2
    assert opened[0].startswith(".out.npy.")
    assert opened[1].startswith(".out.npy.json.")
    assert replaced == ["out.npy.json", "out.npy"]
    assert Release.verify(tmp_path / "out.npy") == MECHANISMS["ball"].guarantee


def test_files_in_parts_refuse_first(tmp_path: Path) -> None:
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    np.save(source, np.zeros((4, 3)))
    with pytest.raises(InvalidParameterError, match="in parts"):
        release_npy(MECHANISMS["directional"], source, target)
    with pytest.raises(ValueError, match="3 rows"):
        release_npy(MECHANISMS["rows"], source, target)
    mirrored = IMGM(SymmetricBall(1.0, neighbouring="replace"), BUDGET, Diagonal([[9.0]]))
    with pytest.raises(InvalidParameterError, match="SymmetricBall"):
        release_npy(mirrored, source, target)
    np.save(source, np.zeros(3))
    with pytest.raises(InvalidParameterError, match="two axes"):
        release_npy(MECHANISMS["ball"], source, target)
    np.save(source, np.array([[np.nan]]))
    with pytest.raises(InvalidParameterError, match="NaN"):
        release_npy(MECHANISMS["ball"], source, target)
    np.save(source, np.zeros((4, 3)))
    target.write_text("precious")
    with pytest.raises(InvalidParameterError, match="exists"):
        release_npy(MECHANISMS["ball"], source, target)
    assert target.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npy", "out.npy"]
    release_npy(MECHANISMS["ball"], source, target, force=True)
    assert Release.verify(target) == MECHANISMS["ball"].guarantee


def test_a_file_release_never_replaces_its_source(tmp_path: Path) -> None:
    source = tmp_path / "in.npy"
    np.save(source, np.zeros((3, 2)))
    before = source.read_bytes()
    (tmp_path / "link.npy").symlink_to(source)
    (tmp_path / "hard.npy").hardlink_to(source)
    (tmp_path / "out.npy.json").symlink_to(source)  # where a statement would go
    for name in ("in.npy", "link.npy", "hard.npy", "out.npy"):
        with pytest.raises(InvalidParameterError, match="which is read"):
            release_npy(MECHANISMS["ball"], source, tmp_path / name, force=True)
    assert source.read_bytes() == before


def test_threads_are_checked_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "in.npy", np.zeros((300, 400)))
    mechanism = IMGM(BALL, BUDGET)
    made = []
    for threads in (None, 1, 3):
        same = SimpleNamespace(token_bytes=bytes, token_hex=secrets.token_hex)
        monkeypatch.setattr(paid, "secrets", same)
        release_npy(
            mechanism, tmp_path / "in.npy", tmp_path / "out.npy", threads=threads, force=True
        )
        made.append((tmp_path / "out.npy").read_bytes())
    assert made[0] == made[1] == made[2]
    with pytest.raises(InvalidParameterError, match="threads=0"):
        release_npy(mechanism, tmp_path / "in.npy", tmp_path / "new.npy", threads=0)
    assert not (tmp_path / "new.npy").exists()
