"""A saved release is believed if it is on its grid, whole, and proven on any machine."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from matrixdp import (
    IMGM,
    Budget,
    BudgetExceededError,
    Diagonal,
    FrobeniusBall,
    InvalidParameterError,
    Isotropic,
    Kronecker,
    Release,
    ReleaseKey,
    RowBounds,
    RowBox,
    SymmetricBall,
)
from matrixdp.errors import FileFormatError, ShapeError
from matrixdp.files.publishing.noise_grid import can_be_released
from matrixdp.files.publishing.streamed_release import release_npy
from matrixdp.noise import simulation_generator
from reference import dense

BUDGET = Budget(1.0, 1e-5)
BALL = FrobeniusBall(1.0, neighbouring="replace")
INDEPENDENT = {
    "ball": IMGM(BALL, BUDGET),
    "symmetric": IMGM(SymmetricBall(0.5, neighbouring="add-remove"), BUDGET),
    "rows": IMGM(RowBounds([1.0, 0.2, 3.0], neighbouring="replace"), BUDGET),
    "box": IMGM(RowBox([0.1, 5.0, 1.0], neighbouring="replace"), BUDGET),
}
independent = pytest.mark.parametrize("mechanism", INDEPENDENT.values(), ids=INDEPENDENT)


def saved_with_other_numbers(mechanism: IMGM, value: NDArray[np.float64], target: Path) -> Path:
    """Save a release, then put other numbers and their digest into its place."""
    mechanism.release(np.eye(len(value))).save(target)
    np.save(target, value)
    beside = target.with_name(target.name + ".json")
    statement = json.loads(beside.read_text())
    statement["file"]["sha256"] = hashlib.sha256(target.read_bytes()).hexdigest()
    beside.write_text(json.dumps(statement))
    return target


@independent
def test_numbers_that_are_not_on_the_grid_are_refused(mechanism: IMGM, tmp_path: Path) -> None:
    simulated = mechanism.simulate(np.eye(3), simulation_generator(1)).array
    nearly = mechanism.release(np.eye(3)).value.copy()
    nearly[2, 2] = np.nextafter(nearly[2, 2], np.inf)
    for value in (simulated, nearly, np.full((3, 3), np.nan), np.full((3, 3), 1 / 3)):
        target = saved_with_other_numbers(mechanism, value, tmp_path / "out.npy")
        for read in (Release.load, Release.verify):
            with pytest.raises(FileFormatError, match="no release"):
                read(target)
        for path in tmp_path.iterdir():
            path.unlink()


def test_tiny_numbers_are_not_on_a_coarse_grid() -> None:
    # In steps of such a grid they would underflow to 0, which is on every grid.
    for scale in (2.0**22, 1e30, 1e200):
        assert can_be_released(np.zeros((1, 1)), Isotropic(scale))
        assert not can_be_released(np.full((1, 1), 5e-324), Isotropic(scale))


def test_an_asymmetric_matrix_has_no_symmetric_noise(tmp_path: Path) -> None:
    value = INDEPENDENT["symmetric"].release(np.eye(3)).value.copy()
    value[0, 1] = value[0, 2]
    target = saved_with_other_numbers(INDEPENDENT["symmetric"], value, tmp_path / "out.npy")
    with pytest.raises(FileFormatError, match="no release"):
        Release.load(target)


@independent
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_honest_release_is_believed(mechanism: IMGM, dtype: type, tmp_path: Path) -> None:
    for number, size in enumerate((0.0, 1e2, 1e4, 1e6 if dtype == np.float32 else 1e12)):
        target = tmp_path / f"{number}.npy"
        mechanism.release(np.full((3, 3), size, dtype=dtype)).save(target)
        assert Release.verify(target) == Release.load(target).guarantee == mechanism.guarantee


def test_what_else_a_statement_says_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "out.npy"
    INDEPENDENT["ball"].release(np.eye(3)).save(target)
    beside = tmp_path / "out.npy.json"
    honest = json.loads(beside.read_text())
    for statement, message in (
        (honest | {"promise": "perfect secrecy"}, "promise"),
        (honest | {"mechanism": 3}, "mechanism"),
        (honest | {"file": honest["file"] | {"dtype": ["float64"]}}, "file.dtype"),
    ):
        beside.write_text(json.dumps(statement))
        for read in (Release.load, Release.verify):
            with pytest.raises(FileFormatError, match=message):
                read(target)


ELSEWHERE = """
import sys
from matrixdp import Release
print(Release.verify(sys.argv[1]).mu, Release.load(sys.argv[1]).guarantee.mu)
"""


@pytest.mark.parametrize("size", [3, pytest.param(60, marks=pytest.mark.thorough), 150])
def test_directional_releases_are_proven_by_other_processors_too(size: int, tmp_path: Path) -> None:
    # Another kernel of the linear algebra, another number of threads: other last digits.
    rows = dense.random_definite(size, np.random.default_rng(size), 2.0)
    covariance = Kronecker(rows, np.eye(2)).rescaled_for(BALL, BUDGET)
    release = IMGM(BALL, BUDGET, covariance).release(np.zeros((size, 2)))
    release.save(tmp_path / "out.npy")
    for change in (
        {"OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_NUM_THREADS": "1"},
        {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "2"},
    ):
        done = subprocess.run(
            [sys.executable, "-c", ELSEWHERE, tmp_path / "out.npy"],
            env=os.environ | change,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [repr(release.guarantee.mu)] * 2


def test_directional_noise_cannot_claim_what_its_covariance_does_not_give() -> None:
    covariance = Kronecker(25.0 * np.eye(3), np.eye(2))
    release = IMGM(BALL, BUDGET, covariance).release(np.zeros((3, 2)))
    for smaller in (
        Kronecker(24.99 * np.eye(3), np.eye(2)),
        Kronecker(25 * np.eye(3), 0.9999 * np.eye(2)),
    ):
        with pytest.raises(InvalidParameterError, match="mu="):
            Release(
                value=release.value,
                sensitivity=BALL,
                covariance=smaller,
                guarantee=release.guarantee,
                mechanism="IMGM",
            )
    with pytest.raises(InvalidParameterError, match="never drawn"):
        Release(
            value=release.value,
            sensitivity=RowBox([0.1, 0.1], neighbouring="replace"),
            covariance=covariance,
            guarantee=release.guarantee,
            mechanism="IMGM",
        )


def test_noise_short_by_a_trifle_is_refused() -> None:
    best = BALL.best_covariance(BUDGET)
    honest = IMGM(BALL, BUDGET).release(np.eye(3))
    for covariance in (Isotropic(best.scale * (1 - 1e-12)), Diagonal([[best.scale * (1 - 1e-12)]])):
        with pytest.raises(BudgetExceededError, match="too small"):
            IMGM(BALL, BUDGET, covariance)
        with pytest.raises(InvalidParameterError, match="mu="):
            Release(
                value=honest.value,
                sensitivity=BALL,
                covariance=covariance,
                guarantee=honest.guarantee,
                mechanism="IMGM",
            )


def test_confidence_covers_the_rounding_of_float32() -> None:
    # From 2^23 on float32 has steps of 1, as large as the noise.
    scale = 1.0
    mechanism = IMGM(FrobeniusBall(BUDGET.mu * scale, "replace"), BUDGET)
    truth, bits, held = np.float32(2**23), np.random.default_rng(5), 0
    for _ in range(300):
        key = ReleaseKey.from_bytes(bits.bytes(32))
        bounds = mechanism.release(np.full((1, 1), truth), key=key).confidence_bounds(0.95)
        held += bool(bounds.lower[0, 0] <= truth <= bounds.upper[0, 0])
    assert held / 300 > 0.9


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_width_of_confidence_bounds(confidence: float) -> None:
    release = INDEPENDENT["rows"].release(np.eye(3))
    bounds = release.confidence_bounds(confidence)
    quantile = stats.norm.ppf((1 + confidence ** (1 / 9)) / 2)
    np.testing.assert_allclose(
        (bounds.upper - bounds.lower) / 2, quantile * release.standard_errors(), rtol=1e-5
    )


def test_directional_noise_keeps_float32_and_tiny_scales() -> None:
    covariance = Kronecker(25.0 * np.eye(3), np.eye(2))
    release = IMGM(BALL, BUDGET, covariance).release(np.zeros((3, 2), dtype=np.float32))
    assert release.value.dtype == np.float32
    tiny = Kronecker(1e-200 * np.eye(2), 1e-200 * np.eye(2))
    assert tiny.largest_singular_value == pytest.approx(1e-200)
    np.testing.assert_allclose(tiny.entry_scales((2, 2)), 1e-200)
    small = IMGM(FrobeniusBall(1e-201, "replace"), BUDGET, tiny).release(np.zeros((2, 2)))
    bounds = small.confidence_bounds()
    assert np.all(bounds.lower < bounds.upper)
    spread = np.abs(np.asarray(small.value))
    assert np.all((spread > 1e-204) & (spread < 1e-198))
    rescaled = Kronecker(np.eye(2), np.eye(2)).rescaled_for(
        FrobeniusBall(1e-170, "replace"), BUDGET
    )
    assert rescaled.smallest_singular_value == pytest.approx(1e-170 / BUDGET.mu)


def test_a_release_larger_than_memory_is_verified_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "in.npy", np.zeros((500, 300)))
    guarantee = release_npy(INDEPENDENT["ball"], tmp_path / "in.npy", tmp_path / "out.npy")

    def whole(*_: object, **__: object) -> None:
        raise AssertionError("read as a whole")

    monkeypatch.setattr("matrixdp.files.publishing.releases.read_matrix", whole)
    monkeypatch.setattr("matrixdp.files.publishing.noise_grid._ENTRIES_TOGETHER", 1000)
    assert Release.verify(tmp_path / "out.npy") == guarantee


@pytest.mark.parametrize("path", ["", "a\0b.npy", "."])
def test_paths_that_name_no_file(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidParameterError, match="does not name a file"):
        INDEPENDENT["ball"].release(np.eye(3)).save(path)
    for read in (Release.load, Release.verify):
        with pytest.raises(InvalidParameterError, match="does not name a file"):
            read(path)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_no_release(tmp_path: Path) -> None:
    (tmp_path / "out.npy").mkdir()
    INDEPENDENT["ball"].release(np.eye(3)).save(tmp_path / "other.npy")
    (tmp_path / "other.npy.json").rename(tmp_path / "out.npy.json")
    with pytest.raises(FileFormatError, match=r"out\.npy is a folder"):
        Release.load(tmp_path / "out.npy")
    (tmp_path / "other.npy.json").mkdir()
    with pytest.raises(FileFormatError, match=r"other\.npy\.json is a folder"):
        Release.load(tmp_path / "other.npy")


def test_only_matrices_go_through_files(tmp_path: Path) -> None:
    np.save(tmp_path / "empty.npy", np.zeros((0, 3)))
    np.save(tmp_path / "in.npy", np.zeros((3, 3)))
    with pytest.raises(InvalidParameterError, match="not be empty"):
        release_npy(INDEPENDENT["ball"], tmp_path / "empty.npy", tmp_path / "out.npy")
    with pytest.raises(InvalidParameterError, match="mechanism is a str"):
        release_npy("IMGM", tmp_path / "in.npy", tmp_path / "out.npy")  # type: ignore[arg-type]
    rows = IMGM(BALL, BUDGET, Diagonal(np.full((4, 1), 9.0)))
    with pytest.raises(ShapeError, match="do not fit"):
        release_npy(rows, tmp_path / "in.npy", tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()
