"""Saved answers: read back with their guarantee proven, or refused."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from matrixdp import Budget, FileFormatError, InvalidParameterError, MatrixMechanism
from matrixdp.mechanisms.answers_file import load_answers, save_answers
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


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="txt"):
        save_answers(MECHANISM, np.zeros(5), tmp_path / "a.txt")
