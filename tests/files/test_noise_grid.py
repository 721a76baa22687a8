"""Numbers that no noise leaves behind: beyond the limit, or on a grid that is too coarse."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from matrixdp import IMGM, Budget, FrobeniusBall, Kronecker, MatrixMechanism, Release
from matrixdp.covariance import (
    Covariance,
    Diagonal,
    Isotropic,
    SymmetricDiagonal,
    SymmetricIsotropic,
)
from matrixdp.errors import FileFormatError
from matrixdp.files.publishing.noise_grid import _rounded_lengths, can_be_released
from matrixdp.files.publishing.streamed_release import release_npy
from matrixdp.mechanisms.workload_release import WorkloadRelease
from matrixdp.noise import ReleaseKey
from matrixdp.noise.application.add import add_noise
from matrixdp.sensitivity import ScaledSymmetricBall
from matrixdp.workloads import Prefix

BUDGET = Budget(1.0, 1e-5)
MECHANISM = IMGM(FrobeniusBall(1.0, "replace"), BUDGET)
COUNTS = np.arange(12.0).reshape(4, 3)


def sign_again(target: Path) -> None:
    beside = target.with_name(target.name + ".json")
    statement = json.loads(beside.read_text())
    statement["file"]["sha256"] = hashlib.sha256(target.read_bytes()).hexdigest()
    beside.write_text(json.dumps(statement))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("value", [COUNTS, np.where(COUNTS == 5.0, 1e300, COUNTS), 0.25 * COUNTS])
def test_numbers_without_noise_are_refused(
    value: np.ndarray, *, streamed: bool, tmp_path: Path
) -> None:
    target = tmp_path / "out.npy"
    if streamed:
        np.save(tmp_path / "in.npy", COUNTS)
        release_npy(MECHANISM, tmp_path / "in.npy", target)
    else:
        MECHANISM.release(COUNTS).save(target)
    np.save(target, value)
    sign_again(target)
    for read in (Release.load, Release.verify):
        with pytest.raises(FileFormatError, match="no release"):
            read(target)


def test_one_number_beyond_the_limit_is_refused() -> None:
    for dtype, limit in ((np.float64, 2.0**54), (np.float32, 2.0**25)):
        noisy = add_noise(np.zeros((3, 3), dtype), 5.0, ReleaseKey.generate())
        for size in (limit + 128.0, -limit - 128.0):
            noisy[1, 1] = size
            assert can_be_released(noisy, Isotropic(5.0))
        noisy[1, 1] = limit + 132.0
        assert not can_be_released(noisy, Isotropic(5.0))
    covariance = Kronecker(25.0 * np.eye(2), np.eye(2))
    assert can_be_released(np.full((2, 2), 1e16), covariance, 5.0)
    assert not can_be_released(np.full((2, 2), 1e17), covariance, 5.0)
    assert not can_be_released(np.full((2, 2), np.nan), covariance, 5.0)


def test_measurements_without_noise_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "out.npz"
    MatrixMechanism(Prefix(8), BUDGET, neighbouring="replace").release(np.arange(8)).save(target)
    with np.load(target) as archive:
        arrays = dict(archive)
    np.savez(target, **arrays | {"measurements": np.rint(arrays["measurements"])})
    sign_again(target)
    with pytest.raises(FileFormatError, match="measurements"):
        WorkloadRelease.load(target)


def test_only_independent_entries_count() -> None:
    # 46 bits are enough: six entries have 39, all nine would have 60.
    scaled = SymmetricDiagonal([1.0, 1.0, 1.0])
    for covariance in (SymmetricIsotropic(1.0), scaled):
        check_that_only_independent_entries_count(covariance)


def check_that_only_independent_entries_count(covariance: Covariance) -> None:
    value = np.full((3, 3), 2.0**-14 * 3)
    assert can_be_released(value, covariance)
    assert not can_be_released(value, Diagonal(covariance.entry_scales((3, 3))))
    if isinstance(covariance, SymmetricIsotropic):
        assert not can_be_released(np.full((4, 4), 2.0**-14 * 3), covariance)


def test_symmetric_noise_of_many_scales_has_many_grids() -> None:
    noise = IMGM(ScaledSymmetricBall(1.0, [1.0, 1e9], "replace"), BUDGET).release(np.eye(2))
    assert can_be_released(noise.value, noise.covariance)
    for index in [(0, 0), (1, 1), (0, 1)]:
        moved = noise.value.copy()
        moved[index] += 2.0**-60 if index == (0, 0) else 2.0**-30
        assert moved[index] == noise.value[index] or not can_be_released(moved, noise.covariance)
    crooked = noise.value.copy()
    crooked[0, 1] += 2.0**20
    assert not can_be_released(crooked, noise.covariance)


def test_scales_of_their_own_have_grids_of_their_own() -> None:
    scales = np.array([[1.0], [2.0**40]])
    noisy = add_noise(np.zeros((2, 9)), scales, ReleaseKey.generate())
    assert can_be_released(noisy, Diagonal(scales))
    # The second row alone is counts of 2**40; the first one still shows its noise.
    assert can_be_released(np.vstack([noisy[:1], np.full((1, 9), 2.0**40)]), Diagonal(scales))
    assert not can_be_released(np.vstack([np.ones((1, 9)), noisy[1:]]), Diagonal(scales))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0, 1e6])
def test_honest_integers_of_every_size_pass(dtype: type, scale: float) -> None:
    bits = np.random.default_rng(7)
    largest = 52 if dtype == np.float64 else 23
    power = 2.0 ** np.floor(np.log2(scale))
    for exponent in range(-3, largest + 1):
        for shape in ((1, 1), (3, 3), (40, 25)):
            size = np.rint(2.0**exponent * power)
            value: np.ndarray = np.full(shape, size, dtype=dtype)
            noisy = add_noise(value, scale, ReleaseKey.from_bytes(bits.bytes(32)))
            assert can_be_released(noisy, Isotropic(scale))


def test_large_integers_without_noise_are_refused_if_there_are_many() -> None:
    # Near a million float32 has steps of 1/16: every integer is a chance of 1 in 16.
    value = np.full((12, 1), 1_000_001, dtype=np.float32)
    assert not can_be_released(value, Isotropic(5.0))
    assert can_be_released(value[:11], Isotropic(5.0))
    # Near 4 million it has steps of 1/2: noise leaves an integer half of the time.
    value = np.full((50, 1), 4_200_001, dtype=np.float32)
    assert not can_be_released(value, Isotropic(5.0))
    assert can_be_released(value[:40], Isotropic(5.0))
    # Near 2**24 it has integers alone, with noise and without.
    assert can_be_released(np.full((1000, 1), 10_000_001, dtype=np.float32), Isotropic(5.0))


@pytest.mark.parametrize(("scale", "enough"), [(5.0, 3), (1e3, 5), (2.0**18, 23), (2.0**19, 46)])
def test_few_counts_without_noise_are_refused(scale: float, enough: int) -> None:
    counts = np.arange(1.0, 101.0)[:, None]
    assert not can_be_released(counts[:enough], Isotropic(scale))
    assert can_be_released(counts[: enough - 1], Isotropic(scale))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_counts_without_directional_noise_are_refused(dtype: type) -> None:
    covariance = Kronecker(np.diag([25.0, 900.0]), np.eye(3))
    mechanism = IMGM(FrobeniusBall(1.0, "replace"), BUDGET, covariance)
    for size in (0.0, 1e4, 1e6):
        counts = size + COUNTS[:2].astype(dtype)
        honest = mechanism.release(counts)
        assert can_be_released(honest.value, covariance, honest.floor)
        few = dtype == np.float32 and size == 1e6
        assert can_be_released(counts, covariance, honest.floor) == few


def test_the_chance_that_the_proof_bounds() -> None:
    """Noise leaves multiples of h with a chance of at most L / h, on every grid and binade."""
    bits = np.random.default_rng(3)
    entries = 1 << 16
    for dtype, sizes in (
        (np.float64, (0.0, 2.0**33, 2.0**34 + 0.7)),
        (np.float32, (0.0, 2.0**6, 2.0**9, 11.3, 2.0**22)),
    ):
        for size in sizes:
            value = np.full((entries, 1), size, dtype=dtype)
            noisy = add_noise(value, 1.0, ReleaseKey.from_bytes(bits.bytes(32)))
            grid = np.array([[2.0**-20]])
            lengths = _rounded_lengths(noisy.astype(float), noisy, Isotropic(1.0), grid)
            for exponent in range(-20, 1):
                chance = min(float(lengths.min()) / 2.0**exponent, 1.0)
                found = np.mean(np.fmod(noisy, 2.0**exponent) == 0.0)
                assert found <= chance + 6.0 * np.sqrt(chance / entries)
