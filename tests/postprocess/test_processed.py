"""Processed releases: the guarantee stays, steps are checked first, files prove themselves."""

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from matrixdp import (
    IMGM,
    Budget,
    Diagonal,
    FrobeniusBall,
    InvalidParameterError,
    MatrixMechanism,
    Release,
    ReleaseKey,
    SymmetricBall,
    SymmetricIsotropic,
    postprocess,
)
from matrixdp.covariance import Covariance
from matrixdp.errors import FileFormatError, ShapeError
from matrixdp.files.schemas.steps import PARAMETERS
from matrixdp.postprocess import (
    Clamp,
    CorrelationMatrix,
    EfronMorris,
    EntryThreshold,
    JamesStein,
    PositiveSemidefinite,
    ProcessedRelease,
    Simplex,
    SingularValueShrinkage,
    SingularValueThreshold,
    Step,
    process,
)
from matrixdp.postprocess.processed import stated_step, step_of
from matrixdp.postprocess.step import FloatArray
from matrixdp.workloads import Prefix

BUDGET = Budget(1.0, 1e-5)
TRUTH = np.outer(np.arange(6.0), np.arange(4.0)) * 10


def released(matrix: Any = TRUTH) -> Release:
    ball = FrobeniusBall(1.0, neighbouring="replace")
    return IMGM(ball, BUDGET).release(matrix, key=ReleaseKey.from_bytes(bytes(32)))


def released_square() -> Release:
    ball = SymmetricBall(0.01, neighbouring="replace")
    return IMGM(ball, BUDGET).release(np.eye(5), key=ReleaseKey.from_bytes(bytes(32)))


@pytest.fixture
def release() -> Release:
    return released()


def test_steps_are_applied_in_their_order_and_the_guarantee_stays(release: Release) -> None:
    before = np.array(release.value)
    steps = (JamesStein(), Clamp(0.0, 100.0), Simplex(900.0))
    found = process(release, *steps)
    expected = before
    for step in steps:
        expected = step.apply(expected, release.covariance)
    np.testing.assert_array_equal(found.value, expected)
    np.testing.assert_array_equal(release.value, before)
    assert found.release is release
    assert found.guarantee is release.guarantee
    assert found.shape == (6, 4)
    assert found.steps == steps
    assert found.applied == (
        "moved towards zero by the positive-part James–Stein rule",
        "entries clamped to at least 0.0 and at most 100.0",
        "projected on the non-negative matrices of total 900.0",
    )
    assert repr(found) == (
        f"ProcessedRelease(shape=(6, 4), {'; then '.join(found.applied)}: {release.guarantee})"
    )
    assert not hasattr(found, "standard_errors")


def test_labels_are_kept() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(TRUTH, columns=list("abcd"), index=range(10, 16))
    found = process(released(frame), Clamp(lower=0.0)).value
    assert list(found.columns) == list("abcd")
    assert list(found.index) == list(range(10, 16))
    assert (found.to_numpy() >= 0.0).all()


def test_single_precision_is_processed_in_double() -> None:
    found = process(released(TRUTH.astype(np.float32)), Clamp(lower=0.0))
    assert found.release.value.dtype == np.float32
    assert found.value.dtype == np.float64


@pytest.mark.parametrize(
    "step",
    [SingularValueShrinkage(), SingularValueThreshold(), EntryThreshold(), JamesStein()],
    ids=lambda step: type(step).__name__,
)
def test_steps_that_know_the_noise_come_first(release: Release, step: Step) -> None:
    process(release, step, Clamp(lower=0.0))
    with pytest.raises(InvalidParameterError, match=r"^steps\[1\].*put it first"):
        process(release, Clamp(lower=0.0), step)
    with pytest.raises(InvalidParameterError, match="processed already"):
        process(process(release, Clamp(lower=0.0)), step)  # type: ignore[arg-type]
    # A threshold that is given uses nothing of the noise.
    process(release, Clamp(lower=0.0), SingularValueThreshold(3.0), EntryThreshold(1.0))


class Counted(Step):
    """A step from elsewhere."""

    def __init__(self, result: Any = None) -> None:
        self.calls = 0
        self.result = result

    def apply(self, value: FloatArray, covariance: Covariance) -> FloatArray:
        del covariance
        self.calls += 1
        return value if self.result is None else np.asarray(self.result)

    def __str__(self) -> str:
        return "counted"


def test_bad_input_is_refused_before_anything_happens(release: Release) -> None:
    first = Counted()
    with pytest.raises(ShapeError, match=r"^CorrelationMatrix takes square"):
        process(release, first, CorrelationMatrix())
    with pytest.raises(InvalidParameterError, match=r"^steps\[1\] is a class \(Clamp\)"):
        process(release, first, Clamp)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match=r"^steps\[1\] is a str"):
        process(release, first, "clamp")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match=r"^release is a ndarray"):
        process(release.value, first)
    assert first.calls == 0
    with pytest.raises(InvalidParameterError, match=r"^steps is empty"):
        process(release)
    workload = MatrixMechanism(Prefix(4), BUDGET, neighbouring="replace").release([1] * 4)
    with pytest.raises(InvalidParameterError, match=r"WorkloadRelease.*nonnegative_estimate"):
        process(workload, first)  # type: ignore[arg-type]
    shaped = IMGM(FrobeniusBall(1.0, "replace"), BUDGET, covariance=Diagonal([[9.0, 8.0]])).release(
        np.ones((1, 2))
    )
    with pytest.raises(InvalidParameterError, match=r"SingularValueShrinkage needs.*one scale"):
        process(shaped, SingularValueShrinkage())


@pytest.mark.parametrize("wrong", [np.full((6, 4), np.nan), np.ones((4, 6))])
def test_steps_must_give_a_finite_matrix(release: Release, wrong: FloatArray) -> None:
    with pytest.raises(InvalidParameterError, match=r"^steps\[0\], Counted, did not give"):
        process(release, Counted(wrong))


def test_symmetric_noise_on_an_asymmetric_matrix_is_refused() -> None:
    good = released_square()
    assert isinstance(good.covariance, SymmetricIsotropic)
    value = np.array(good.value)
    value[0, 1] += 1.0
    forged = Release(
        value=value,
        sensitivity=good.sensitivity,
        covariance=good.covariance,
        guarantee=good.guarantee,
        mechanism="ByHand",
    )
    with pytest.raises(InvalidParameterError, match="not symmetric"):
        process(forged, SingularValueShrinkage())


RECTANGULAR: list[tuple[Step, ...]] = [
    (SingularValueShrinkage("nuclear"), Clamp(lower=np.zeros((6, 1)), upper=1e4)),
    (SingularValueThreshold(), Simplex(10.0, over="rows")),
    (EntryThreshold(), SingularValueThreshold(0.1), EntryThreshold(0.5)),
    (JamesStein(TRUTH + 1 / 3),),
    (JamesStein(), Clamp(upper=3.0)),
    (EfronMorris(), Simplex(7.5)),
]
SQUARE: list[tuple[Step, ...]] = [
    (SingularValueShrinkage("operator"), PositiveSemidefinite()),
    (CorrelationMatrix(),),
]


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
@pytest.mark.parametrize("steps", [*RECTANGULAR, *SQUARE])
def test_files_prove_the_release_and_repeat_the_steps(
    steps: tuple[Step, ...], suffix: str, tmp_path: Path
) -> None:
    release = released_square() if steps in SQUARE else released()
    path = tmp_path / f"counts{suffix}"
    made = process(release, *steps)
    made.save(path)
    again = ProcessedRelease.load(path)
    # The same program on the same machine gives the same digits.
    np.testing.assert_array_equal(again.value, made.value)
    assert again.guarantee == release.guarantee
    assert again.applied == made.applied
    # What is in the file is the release, with its certificate.
    np.testing.assert_array_equal(Release.load(path).value, release.value)
    assert Release.verify(path) == release.guarantee
    statement = json.loads((tmp_path / f"counts{suffix}.json").read_text())
    assert [step["kind"] for step in statement["applied"]] == [type(s).__name__ for s in steps]


def test_plain_releases_are_written_as_before(release: Release, tmp_path: Path) -> None:
    release.save(tmp_path / "plain.npy")
    assert "applied" not in json.loads((tmp_path / "plain.npy.json").read_text())
    with pytest.raises(FileFormatError, match="without steps: read it with Release"):
        ProcessedRelease.load(tmp_path / "plain.npy")


def test_nothing_is_overwritten_unless_forced(release: Release, tmp_path: Path) -> None:
    path = tmp_path / "counts.npy"
    made = process(release, Clamp(lower=0.0))
    made.save(path)
    with pytest.raises(InvalidParameterError, match="exists"):
        made.save(path)
    process(release, Clamp(lower=1.0)).save(path, force=True)
    assert ProcessedRelease.load(path).applied == ("entries clamped to at least 1.0",)


@pytest.mark.parametrize(
    "applied",
    [
        [{"kind": "Clamp", "lower": [[2.0]], "upper": [[1.0]]}],
        [{"kind": "Clamp", "lower": [[2.0, 1.0]], "upper": None}],
        [{"kind": "PositiveSemidefinite"}],
        [{"kind": "Clamp", "lower": [[0.0]], "upper": None}, {"kind": "EfronMorris"}],
        [{"kind": "SingularValueShrinkage", "loss": "hinge"}],
        [{"kind": "Sharpen"}],
        [{"kind": "EfronMorris", "more": 1}],
        [{"kind": "Simplex", "total": -1.0, "over": "rows"}],
    ],
)
def test_altered_steps_are_refused(
    release: Release, applied: list[dict[str, Any]], tmp_path: Path
) -> None:
    path, beside = tmp_path / "counts.npy", tmp_path / "counts.npy.json"
    process(release, EfronMorris()).save(path)
    statement = json.loads(beside.read_text())
    beside.write_text(json.dumps(statement | {"applied": applied}))
    with pytest.raises(FileFormatError):
        ProcessedRelease.load(path)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (SingularValueShrinkage("nuclear"), '{"kind":"SingularValueShrinkage","loss":"nuclear"}'),
        (SingularValueThreshold(), '{"kind":"SingularValueThreshold","threshold":null}'),
        (SingularValueThreshold(0.1), '{"kind":"SingularValueThreshold","threshold":0.1}'),
        (EntryThreshold(2), '{"kind":"EntryThreshold","threshold":2.0}'),
        (JamesStein(), '{"kind":"JamesStein","target":null}'),
        (JamesStein([[1, 1 / 3]]), '{"kind":"JamesStein","target":[[1.0,0.3333333333333333]]}'),
        (EfronMorris(), '{"kind":"EfronMorris"}'),
        (PositiveSemidefinite(), '{"kind":"PositiveSemidefinite"}'),
        (CorrelationMatrix(), '{"kind":"CorrelationMatrix"}'),
        (Simplex(7, over="rows"), '{"kind":"Simplex","total":7.0,"over":"rows"}'),
        (Clamp(upper=3), '{"kind":"Clamp","lower":null,"upper":[[3.0]]}'),
        (Clamp([[0], [1]], 9), '{"kind":"Clamp","lower":[[0.0],[1.0]],"upper":[[9.0]]}'),
    ],
)
def test_the_json_of_every_step_is_part_of_the_format(step: Step, text: str) -> None:
    stated = stated_step(step)
    assert msgspec.json.encode(stated) == text.encode()
    again = step_of(msgspec.json.decode(text, type=type(stated)))
    assert type(again) is type(step)
    assert str(again) == str(step)
    assert msgspec.json.encode(stated_step(again)) == text.encode()


def test_every_step_of_the_library_can_be_stated() -> None:
    public = [getattr(postprocess, name) for name in postprocess.__all__]
    steps: list[Any] = [one for one in public if isinstance(one, type) and issubclass(one, Step)]
    fields = {one.__name__: tuple(f.name for f in dataclasses.fields(one)) for one in steps[:-1]}
    assert steps[-1] is Step
    assert fields == PARAMETERS


@pytest.mark.parametrize(
    "step",
    [
        {"kind": "Sharpen"},
        {"kind": 3},
        {"loss": "nuclear"},
        {"kind": "EfronMorris", "more": 1},
        {"kind": "EfronMorris", "threshold": 1.0},
        {"kind": "EntryThreshold"},
        {"kind": "EntryThreshold", "threshold": True},
        {"kind": "EntryThreshold", "threshold": "1.0"},
        {"kind": "Clamp", "lower": 2.0, "upper": None},
        {"kind": "Clamp", "lower": [[2.0]]},
        {"kind": "JamesStein", "target": [["a"]]},
        {"kind": "SingularValueShrinkage", "loss": "hinge"},
        {"kind": "Simplex", "total": None, "over": "rows"},
        {"kind": "Simplex", "total": 1.0, "over": "columns"},
        ["EfronMorris"],
    ],
)
@pytest.mark.parametrize("read", [Release.load, Release.verify, ProcessedRelease.load])
def test_malformed_steps_are_refused_by_every_reader(
    release: Release, read: Callable[[Path], object], step: object, tmp_path: Path
) -> None:
    path, beside = tmp_path / "counts.npy", tmp_path / "counts.npy.json"
    process(release, EfronMorris()).save(path)
    statement = json.loads(beside.read_text())
    beside.write_text(json.dumps(statement | {"applied": [step]}))
    with pytest.raises(FileFormatError, match="is not a statement of matrixdp"):
        read(path)


def test_an_altered_matrix_is_refused(release: Release, tmp_path: Path) -> None:
    path = tmp_path / "counts.npy"
    made = process(release, Clamp(lower=0.0))
    made.save(path)
    # The processed matrix in place of the released one: an export, which certifies nothing.
    np.save(path, made.value)
    with pytest.raises(FileFormatError, match="digest differs"):
        ProcessedRelease.load(path)


class Other(PositiveSemidefinite):
    """A subclass that may do anything."""


@pytest.mark.parametrize("step", [Counted(), Other()])
def test_steps_from_elsewhere_cannot_be_saved(step: Step, tmp_path: Path) -> None:
    made = process(released_square(), step)
    with pytest.raises(InvalidParameterError, match=f"^a {type(step).__name__} cannot be saved"):
        made.save(tmp_path / "counts.npy")
    assert list(tmp_path.iterdir()) == []


def test_copies_are_equal(release: Release) -> None:
    made = process(release, JamesStein(TRUTH), Clamp(lower=np.zeros((6, 4))))
    for one in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):  # noqa: S301 - our own
        np.testing.assert_array_equal(one.value, made.value)
        assert one.guarantee == made.guarantee
        assert one.applied == made.applied
