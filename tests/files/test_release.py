"""Releases: how good they are, and what survives on disk."""

import errno
import json
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from matrixdp import (
    IMGM,
    Budget,
    FrobeniusBall,
    Guarantee,
    InvalidParameterError,
    Isotropic,
    Kronecker,
    MatrixDPError,
    Release,
    ReleaseKey,
    RowBounds,
    RowBox,
    SymmetricBall,
)
from matrixdp.covariance import Covariance
from matrixdp.errors import FileFormatError, ShapeError, StorageError
from matrixdp.files.publishing import atomic
from matrixdp.files.publishing.streamed_release import release_npy
from reference import dense

BUDGET = Budget(1.0, 1e-5)
BALL = FrobeniusBall(1.0, neighbouring="replace")
MECHANISMS = {
    "ball": IMGM(BALL, BUDGET),
    "symmetric": IMGM(SymmetricBall(0.5, neighbouring="add-remove"), BUDGET),
    "rows": IMGM(RowBounds([1.0, 0.2, 3.0], neighbouring="replace"), BUDGET),
    "box": IMGM(RowBox([0.1, 5.0, 1.0], neighbouring="replace", weights=[1, 2, 3]), BUDGET),
    "directional": IMGM(BALL, BUDGET, Kronecker(50 * np.eye(3), np.diag([1.0, 2.0, 3.0]))),
    "one side": IMGM(BALL, BUDGET, Kronecker(columns=np.diag([15.0, 40.0, 90.0]))),
}
all_mechanisms = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


@all_mechanisms
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv"])
def test_what_is_saved_is_what_is_loaded(mechanism: IMGM, suffix: str, tmp_path: Path) -> None:
    release = mechanism.release(np.eye(3))
    release.save(tmp_path / f"out{suffix}")
    again = Release.load(tmp_path / f"out{suffix}")
    np.testing.assert_array_equal(again.value, release.value)
    assert again.guarantee == release.guarantee
    np.testing.assert_array_equal(again.standard_errors(), release.standard_errors())
    assert Release.verify(tmp_path / f"out{suffix}") == release.guarantee
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"out{suffix}", f"out{suffix}.json"]


def test_float32_survives(tmp_path: Path) -> None:
    release = MECHANISMS["ball"].release(np.zeros((2, 3), np.float32))
    for suffix in (".npy", ".csv"):
        release.save(tmp_path / f"out{suffix}")
        again = Release.load(tmp_path / f"out{suffix}").value
        assert again.dtype == np.float32
        np.testing.assert_array_equal(again, release.value)


def test_the_statement_holds_nothing_of_the_input(tmp_path: Path) -> None:
    secret = np.full((2, 2), 123456.0)
    release = MECHANISMS["ball"].release(secret)
    release.save(tmp_path / "out.npy")
    for text in (repr(release), (tmp_path / "out.npy.json").read_text()):
        assert "123456" not in text
    assert release.guarantee.neighbouring == "replace"


def test_existing_files_are_kept_unless_forced(tmp_path: Path) -> None:
    release = MECHANISMS["ball"].release(np.zeros((2, 2)))
    for name in ("out.npy", "out.npy.json"):
        (tmp_path / name).write_text("precious")
        with pytest.raises(InvalidParameterError, match="exists"):
            release.save(tmp_path / "out.npy")
        assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]
        (tmp_path / name).unlink()
    release.save(tmp_path / "out.npy")
    MECHANISMS["ball"].release(np.zeros((5, 5))).save(tmp_path / "out.npy", force=True)
    assert Release.load(tmp_path / "out.npy").shape == (5, 5)
    with pytest.raises(InvalidParameterError, match="folder"):
        release.save(tmp_path / "no" / "out.npy")
    with pytest.raises(InvalidParameterError, match="format"):
        release.save(tmp_path / "out.txt")
    assert len(list(tmp_path.iterdir())) == 2


def altered(path: Path, *keys: str, value: object) -> None:
    """Change one entry of a statement."""
    statement = json.loads(path.read_text())
    inner = statement
    for name in keys[:-1]:
        inner = inner[name]
    inner[keys[-1]] = value
    path.write_text(json.dumps(statement))


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("guarantee", "epsilon"), 0.5, "not guaranteed"),
        (("guarantee", "delta"), 1e-9, "not guaranteed"),
        (("guarantee", "mu"), 0.1, "was altered"),
        (("guarantee", "neighbouring"), "add-remove", "was altered"),
        (("sensitivity", "bound"), 2.0, "was altered"),
        (("covariance", "scale"), 1.0, "was altered"),
        (("covariance", "kind"), "Magic", "Magic"),
        (("sensitivity", "kind"), "Magic", "Magic"),
        (("schema",), "matrixdp-release/99", "schema"),
        (("guarantee", "records"), 1000, "one record"),
        (("guarantee", "epsilon"), "1", r"\$.guarantee.epsilon"),
        (("guarantee", "delta"), None, r"\$.guarantee.delta"),
        (("covariance", "scale"), float("nan"), "malformed"),
        (("covariance", "scale"), True, r"\$.covariance.scale"),
        (("covariance", "note"), "extra", "note"),
        (("file", "shape"), [2, 2.0, 2], r"\$.file.shape"),
        (("sensitivity",), [], "not a statement"),
        (("sensitivity",), None, "not a statement"),
        (("in_words",), "(0, 0)-differential privacy", "altered"),
        (("noise",), "other-noise-7", "altered"),
        (("file", "shape"), [9, 9], "does not hold"),
        (("file", "dtype"), "int8", "file.dtype"),
        (("file", "dtype"), "float32", "does not hold"),
        (("file", "sha256"), "0" * 64, "digest differs"),
    ],
)
def test_an_altered_statement_is_refused(
    keys: tuple[str, ...], value: object, message: str, tmp_path: Path
) -> None:
    MECHANISMS["ball"].release(np.zeros((2, 2))).save(tmp_path / "out.npy")
    altered(tmp_path / "out.npy.json", *keys, value=value)
    with pytest.raises(FileFormatError, match=message):
        Release.verify(tmp_path / "out.npy")


def test_a_statement_for_another_shape_is_refused(tmp_path: Path) -> None:
    rows = IMGM(RowBounds([1.0, 1.0], neighbouring="replace"), BUDGET)
    rows.release(np.zeros((2, 2))).save(tmp_path / "out.npy")
    bounds, scales = [1.0] * 7, [[9.0]] * 7
    altered(tmp_path / "out.npy.json", "sensitivity", "bounds", value=bounds)
    altered(tmp_path / "out.npy.json", "covariance", "scales", value=scales)
    for read in (Release.load, Release.verify):
        with pytest.raises(FileFormatError, match="7 rows"):
            read(tmp_path / "out.npy")


def test_a_header_that_is_none_is_refused(tmp_path: Path) -> None:
    MECHANISMS["ball"].release(np.zeros((3, 2))).save(tmp_path / "out.csv")
    altered(tmp_path / "out.csv.json", "file", "header", value=True)
    with pytest.raises(FileFormatError, match="does not hold"):
        Release.load(tmp_path / "out.csv")


@pytest.mark.parametrize("force", [False, True])
def test_a_full_disk_changes_nothing(
    force: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = tmp_path / "out.npy"
    if force:
        MECHANISMS["ball"].release(np.zeros((2, 2))).save(target)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    made = []
    true_force = atomic._force

    def full(file: BinaryIO) -> None:
        made.append(file)
        if len(made) == 2:
            raise OSError(errno.ENOSPC, "full")
        true_force(file)

    monkeypatch.setattr(atomic, "_force", full)
    with pytest.raises(StorageError, match="no space"):
        MECHANISMS["ball"].release(np.zeros((2, 2))).save(target, force=force)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_file_release_that_cannot_be_stated_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "in.npy", np.zeros((3, 3)))

    def full(*_: object) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(atomic, "hidden_file", full)
    with pytest.raises(StorageError, match="no space"):
        release_npy(MECHANISMS["ball"], tmp_path / "in.npy", tmp_path / "out.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]
    with pytest.raises(InvalidParameterError, match=r"\.npy"):
        release_npy(MECHANISMS["ball"], tmp_path / "in.npy", tmp_path / "out.csv")


def test_other_damage_is_refused(tmp_path: Path) -> None:
    target, beside = tmp_path / "out.npy", tmp_path / "out.npy.json"
    MECHANISMS["ball"].release(np.zeros((2, 2))).save(target)
    whole = target.read_bytes()
    target.write_bytes(whole[:-1] + b"x")
    with pytest.raises(FileFormatError, match="digest differs"):
        Release.load(target)
    target.write_bytes(whole)
    statement = beside.read_text()
    for damage in ("", "[]", "{}", "not json", statement[:-40]):
        beside.write_text(damage)
        with pytest.raises(FileFormatError, match="not a statement"):
            Release.load(target)
    beside.unlink()
    with pytest.raises(FileFormatError, match="missing"):
        Release.load(target)


def test_noise_scale_is_one_number_or_none() -> None:
    assert MECHANISMS["ball"].release(np.eye(3)).noise_scale == pytest.approx(3.7306316)
    for name in ("symmetric", "rows", "box", "directional"):
        assert MECHANISMS[name].release(np.eye(3)).noise_scale is None


@pytest.mark.parametrize("name", ["ball", "rows", "directional", "symmetric"])
def test_confidence_bounds_hold_all_at_once(name: str) -> None:
    # 2,000 releases: the share covered has standard error 0.0067 at 0.9. Independent entries must
    # meet 0.9, dependent ones at least 0.9 (Sidak).
    mechanism, truth = MECHANISMS[name], 5 * dense.random_definite(3, np.random.default_rng(2))
    bits, held = np.random.default_rng(4), 0
    for _ in range(2000):
        release = mechanism.release(truth, key=ReleaseKey.from_bytes(bits.bytes(32)))
        bounds = release.confidence_bounds(0.9)
        held += bool(np.all((bounds.lower <= truth) & (truth <= bounds.upper)))
    assert held / 2000 > 0.9 - 0.025
    if name in {"ball", "rows"}:
        assert held / 2000 < 0.9 + 0.025


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, float("nan"), "0.9", True])
def test_bad_confidence(confidence: float) -> None:
    with pytest.raises(InvalidParameterError, match="confidence="):
        MECHANISMS["ball"].release(np.eye(3)).confidence_bounds(confidence)


def test_pandas_labels_are_kept(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4]}, index=["x", "y"])
    release = MECHANISMS["ball"].release(frame)
    assert list(release.value.index) == ["x", "y"]
    assert list(release.value.columns) == ["a", "b"]
    release.save(tmp_path / "out.csv")
    again = pd.read_csv(tmp_path / "out.csv", index_col=0)
    pd.testing.assert_frame_equal(again, release.value)
    np.testing.assert_array_equal(Release.load(tmp_path / "out.csv").value, release.value)
    with pytest.raises(InvalidParameterError, match="object"):
        MECHANISMS["ball"].release(pd.DataFrame({"a": ["one"]}))
    with pytest.raises(InvalidParameterError, match="NaN"):
        MECHANISMS["ball"].release(pd.DataFrame({"a": [None, 1.0]}))


def test_polars_labels_are_kept(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    release = MECHANISMS["ball"].release(frame)
    assert isinstance(release.value, pl.DataFrame)
    assert release.value.columns == ["a", "b"]
    release.save(tmp_path / "out.csv")
    np.testing.assert_array_equal(pl.read_csv(tmp_path / "out.csv"), release.value)
    with pytest.raises(InvalidParameterError, match="NaN"):
        MECHANISMS["ball"].release(pl.DataFrame({"a": [None, 1.0]}))


def test_covariances_of_every_kind_are_public(tmp_path: Path) -> None:
    for name, mechanism in MECHANISMS.items():
        mechanism.release(np.eye(3)).save(tmp_path / f"{name}.npy")
        loaded = Release.load(tmp_path / f"{name}.npy").covariance
        assert isinstance(loaded, Covariance)
        assert type(loaded) is type(mechanism.covariance)


def by_hand(**changes: object) -> Release:
    release = MECHANISMS["rows"].release(np.eye(3))
    parts = {name: getattr(release, name) for name in FIELDS} | changes
    return Release(**parts)


FIELDS = ("value", "sensitivity", "covariance", "guarantee", "mechanism")
HONEST = MECHANISMS["rows"].guarantee


def test_a_release_by_hand_proves_its_guarantee() -> None:
    assert by_hand().guarantee == HONEST
    assert by_hand(covariance=MECHANISMS["rows"].covariance.scaled(2.0)).guarantee == HONEST


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"covariance": MECHANISMS["rows"].covariance.scaled(0.999)}, ValueError, "mu="),
        ({"covariance": Isotropic(1.0)}, ValueError, "mu="),
        (
            {"sensitivity": RowBounds([1.0, 0.2, 3.1], neighbouring="replace")},
            ValueError,
            "mu=",
        ),
        (
            {"sensitivity": RowBounds([1.0, 0.2, 3.0], neighbouring="add-remove")},
            ValueError,
            "neighbouring",
        ),
        ({"guarantee": HONEST.for_group(2)}, ValueError, "records=2"),
        ({"guarantee": "private"}, ValueError, "guarantee is a str"),
        ({"sensitivity": 1.0}, ValueError, "sensitivity is a float"),
        ({"covariance": 1.0}, ValueError, "covariance is a float"),
        # Noise that is large enough, but that no mechanism draws for such a set.
        ({"covariance": Kronecker(1e6 * np.eye(3), np.eye(3))}, ValueError, "never drawn"),
        ({"value": np.zeros((2, 3))}, ShapeError, "3 rows"),
        ({"value": np.zeros(3)}, ShapeError, "a release is a matrix"),
    ],
)
def test_a_release_by_hand_cannot_claim_more(
    changes: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        by_hand(**changes)
    assert isinstance(caught.value, MatrixDPError)


def test_a_release_of_a_proof_cannot_claim_more() -> None:
    proof = MECHANISMS["rows"].proof
    assert Release.from_proof(np.eye(3), proof, HONEST, "IMGM").guarantee == HONEST
    less = Guarantee.of_mu(0.99 * proof.mu, delta=1e-5, neighbouring="replace")
    other = Guarantee.of_mu(proof.mu, delta=1e-5, neighbouring="add-remove")
    for claim, message in (
        (less, "mu="),
        (other, "neighbouring"),
        (HONEST.for_group(2), "records=2"),
    ):
        with pytest.raises(InvalidParameterError, match=message):
            Release.from_proof(np.eye(3), proof, claim, "IMGM")


def test_the_name_of_an_index_is_kept(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    index = pandas.Index(["x", "y", "z"], name="person")
    frame = pandas.DataFrame(np.zeros((3, 2)), index=index, columns=["a", "b"])
    MECHANISMS["ball"].release(frame).save(tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().startswith("person,a,b")
    MECHANISMS["ball"].release(frame.rename_axis(None)).save(tmp_path / "plain.csv")
    assert (tmp_path / "plain.csv").read_text().startswith(",a,b")


def test_nested_labels_are_joined(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    index = pandas.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["who", "when"])
    columns = pandas.MultiIndex.from_tuples([("a", "b"), ("a", "c")])
    frame = pandas.DataFrame(np.zeros((2, 2)), index=index, columns=columns)
    release = MECHANISMS["ball"].release(frame)
    assert release.value.index.equals(index)
    assert release.value.columns.equals(columns)
    release.save(tmp_path / "out.csv")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "who/when,a/b,a/c"
    assert [line.split(",")[0] for line in lines[1:]] == ["x/1", "y/2"]
    assert Release.load(tmp_path / "out.csv").shape == (2, 2)
