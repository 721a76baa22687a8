"""Releases where arrays are expected: numpy and scikit-learn see the numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp import (
    IMGM,
    Budget,
    FrobeniusBall,
    InvalidParameterError,
    MatrixMechanism,
    Release,
    RowBox,
    WorkloadRelease,
)
from matrixdp.postprocess import Clamp, process
from matrixdp.queries import Mean, PublicBounds
from matrixdp.workloads import Prefix

BUDGET = Budget(1.0, 1e-5)
MECHANISM = IMGM(FrobeniusBall(1.0, neighbouring="replace"), BUDGET)
MATRIX = np.arange(12.0).reshape(4, 3)


def workload_release() -> WorkloadRelease:
    return MatrixMechanism(Prefix(5), BUDGET, neighbouring="replace").release([3, 0, 1, 2, 9])


def releases() -> list[Any]:
    released = MECHANISM.release(MATRIX)
    means = Mean(PublicBounds(3, norm=1.0), "add-remove").release(MATRIX, BUDGET)
    return [released, process(released, Clamp(lower=0.0)), means, workload_release()]


@pytest.mark.parametrize("release", releases(), ids=lambda release: type(release).__name__)
def test_numpy_sees_the_value(release: Any) -> None:
    np.testing.assert_array_equal(np.asarray(release), release.value)
    assert np.asarray(release).dtype == np.float64
    assert np.shape(release) == release.shape
    single = np.asarray(release, dtype=np.float32)
    assert single.dtype == np.float32
    np.testing.assert_allclose(np.mean(release), np.mean(release.value))
    # A copy is one that may be changed without changing the release.
    before = np.array(release.value)
    np.array(release)[...] = 0.0
    np.testing.assert_array_equal(release.value, before)


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="numpy 1 has no such copy"
)
def test_a_copy_that_is_needed_and_forbidden_is_refused() -> None:
    release = MECHANISM.release(MATRIX)
    assert np.shares_memory(np.array(release, copy=False), release.value)
    with pytest.raises(ValueError, match="copy"):
        np.array(release, dtype=np.float32, copy=False)


def test_labels_are_left_out() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(MATRIX, columns=["a", "b", "c"], index=list("wxyz"))
    release = MECHANISM.release(frame)
    assert type(np.asarray(release)) is np.ndarray
    np.testing.assert_array_equal(np.asarray(release), release.value.to_numpy())


def test_scikit_learn_sees_the_matrix() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    release = MECHANISM.release(MATRIX)
    ours = decomposition.PCA(2).fit(release).components_
    np.testing.assert_array_equal(ours, decomposition.PCA(2).fit(release.value).components_)


def test_what_is_released_is_not_released_again_by_mistake() -> None:
    release = MECHANISM.release(MATRIX)
    with pytest.raises(InvalidParameterError, match="matrix is a Release"):
        MECHANISM.release(release)


def test_a_noise_scale_that_is_not_one_number_is_none() -> None:
    box = RowBox([1.0, 2.0, 3.0], neighbouring="replace")
    assert IMGM(box, BUDGET).release(MATRIX).noise_scale is None
    release = MECHANISM.release(MATRIX)
    assert release.noise_scale == release.standard_errors()[0, 0]


def test_a_workload_release_has_what_a_release_has(tmp_path: Path) -> None:
    shaped = {"noise_scale", "sensitivity", "covariance", "floor", "proof", "mechanism"}
    wanted = {name for name in dir(Release) if not name.startswith("_")} - shaped - {"from_proof"}
    assert wanted <= set(dir(WorkloadRelease))
    release = workload_release()
    np.testing.assert_array_equal(release.value, release.answers)
    release.save(tmp_path / "out.npz")
    assert WorkloadRelease.verify(tmp_path / "out.npz") == release.guarantee
