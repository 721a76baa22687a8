"""Saved answers: read back with their guarantee proven, or refused."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from matrixdp import Budget, InvalidParameterError, MatrixMechanism
from matrixdp.errors import FileFormatError, ShapeError
from matrixdp.files.answers import load_answers, save_answers
from matrixdp.workloads import Prefix

MECHANISM = MatrixMechanism(Prefix(5), Budget(1.0, 1e-5), neighbouring="replace")


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.csv"])
def test_round_trip(name: str, tmp_path: Path) -> None:
    release = MECHANISM.release([3, 1, 4, 1, 5])
    save_answers(MECHANISM, release.answers, tmp_path / name, post_processing=("whole",))
    saved = load_answers(tmp_path / name)
    np.testing.assert_array_equal(saved.answers, release.answers)
    assert saved.guarantee == release.guarantee
    assert saved.workload == "Prefix(5)"
    assert saved.expected_error == MECHANISM.expected_error
    assert saved.post_processing == ("whole",)


def edit(**fields: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "a.npy.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return change


def hold(array: np.ndarray, **fields: object) -> Callable[[Path], None]:
    """Put another array there, and its digest into the statement."""

    def change(folder: Path) -> None:
        np.save(folder / "a.npy", array)
        digest = hashlib.sha256((folder / "a.npy").read_bytes()).hexdigest()
        edit(file={"name": "a.npy", "sha256": digest}, **fields)(folder)

    return change


def claim(**fields: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        guarantee = json.loads((folder / "a.npy.json").read_text())["guarantee"]
        edit(guarantee=guarantee | fields)(folder)

    return change


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda folder: (folder / "a.npy").unlink(), "missing"),
        (lambda folder: (folder / "a.npy.json").unlink(), "missing"),
        (lambda folder: (folder / "a.npy.json").write_bytes(b"\xff"), "not a statement"),
        (lambda folder: (folder / "a.npy.json").write_text("[]"), "not a statement"),
        (lambda folder: np.save(folder / "a.npy", np.zeros((5, 1))), "digest"),
        (edit(schema="matrixdp-release/1"), "schema"),
        (edit(queries=6), "does not hold the answers"),
        (edit(queries=5.0), "queries"),
        (edit(queries=True), "queries"),
        (edit(workload=3), "workload"),
        (edit(expected_rmse=float("nan")), "expected_rmse"),
        (edit(expected_rmse=float("inf")), "expected_rmse"),
        (edit(expected_rmse=-1.0), "expected_rmse"),
        (edit(expected_rmse="1"), "expected_rmse"),
        (edit(expected_rmse=10**400), "expected_rmse"),
        (edit(expected_rmse=None), "expected_rmse"),
        (edit(post_processing="whole"), "post_processing"),
        (edit(post_processing={"whole": 1}), "post_processing"),
        (edit(post_processing=[1]), "post_processing"),
        (hold(np.array([[1.0], [2.0], [np.nan], [4.0], [5.0]])), "finite"),
        (hold(np.array([[1.0], [2.0], [np.inf], [4.0], [5.0]])), "finite"),
        (hold(np.arange(5.0)), "one column"),
        (hold(np.ones((5, 2))), "one column"),
        (hold(np.ones((5, 1), complex)), "one column"),
        (hold(np.array([["a"]] * 5)), "one column"),
        (hold(np.ones((2, 2)), queries=4), "one column"),
        (edit(workload=None, post_processing=None), "not a statement"),
        (claim(mu=0.1), "the noise gives mu"),
        (claim(epsilon=0.5), "not a statement"),
        (claim(neighbouring="add-remove"), "altered"),
    ],
)
def test_damage_is_told(damage: Callable[[Path], None], told: str, tmp_path: Path) -> None:
    save_answers(MECHANISM, MECHANISM.release([1] * 5).answers, tmp_path / "a.npy")
    damage(tmp_path)
    with pytest.raises(FileFormatError, match=told):
        load_answers(tmp_path / "a.npy")


def test_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (".", tmp_path):
        with pytest.raises(FileFormatError, match="folder"):
            load_answers(name)


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="txt"):
        save_answers(MECHANISM, np.zeros(5), tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (np.zeros(4), r"answers has shape \(4,\): pass one number for each of the 5 queries"),
        (np.zeros((5, 1)), r"answers has shape \(5, 1\)"),
        (np.array([1.0, 2.0, np.nan, 4.0, 5.0]), "answers must hold finite"),
        (np.array([1.0, 2.0, -np.inf, 4.0, 5.0]), "answers must hold finite"),
        (np.zeros(5, complex), "answers must hold finite real"),
        (np.array(["1"] * 5), "answers must hold finite real"),
        (np.zeros(5, bool), "answers must hold finite real"),
    ],
)
def test_what_is_no_answer_is_not_written(answers: np.ndarray, told: str, tmp_path: Path) -> None:
    with pytest.raises((ShapeError, InvalidParameterError), match=told):
        save_answers(MECHANISM, answers, tmp_path / "a.npy")
    assert list(tmp_path.iterdir()) == []
