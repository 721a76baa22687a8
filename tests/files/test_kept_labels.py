"""Labels of a release stay with it through every format that has a place for them."""

import itertools
import warnings
from pathlib import Path

import numpy as np
import pytest

from matrixdp import IMGM, Budget, FrobeniusBall, Release
from matrixdp.files.formats.suffixes import ARROW, FORMATS, LABELLED
from matrixdp.mechanisms.labelled import MatrixFile, MatrixLabels
from matrixdp.postprocess import Clamp, ProcessedRelease, process
from matrixdp.queries import Mean, MeanRelease, PublicBounds

BUDGET = Budget(1.0, 1e-5)
MECHANISM = IMGM(FrobeniusBall(1.0, "replace"), BUDGET)
LABELLED_MATRIX = MatrixFile(np.eye(2), ["1990", "b"], ["x;y", "z"], "id")


def needed(*suffixes: str) -> None:
    if set(suffixes) & set(ARROW):
        pytest.importorskip("pyarrow")


@pytest.mark.parametrize(("first", "second"), list(itertools.product(LABELLED, LABELLED)))
def test_labels_survive_loading_and_saving(first: str, second: str, tmp_path: Path) -> None:
    needed(first, second)
    release = MECHANISM.release(LABELLED_MATRIX)
    release.save(tmp_path / f"a{first}")
    loaded = Release.load(tmp_path / f"a{first}")
    assert isinstance(loaded.value, np.ndarray)
    assert loaded.labels == MatrixLabels(["1990", "b"], ["x;y", "z"], "id")
    loaded.save(tmp_path / f"b{second}")
    again = Release.load(tmp_path / f"b{second}")
    assert again.labels == loaded.labels
    np.testing.assert_array_equal(again.value, np.asarray(release.value))


@pytest.mark.parametrize(
    ("columns", "index"), [(["a", "b"], None), (None, ["x", "y"]), (None, None)]
)
@pytest.mark.parametrize("suffix", LABELLED)
def test_some_labels_or_none(
    suffix: str, columns: list[str] | None, index: list[str] | None, tmp_path: Path
) -> None:
    needed(suffix)
    MECHANISM.release(MatrixFile(np.eye(2), columns, index)).save(tmp_path / f"a{suffix}")
    loaded = Release.load(tmp_path / f"a{suffix}")
    loaded.save(tmp_path / f"b{suffix}")
    labels = Release.load(tmp_path / f"b{suffix}").labels
    assert (labels and labels.columns) == columns
    assert (labels and labels.index) == index


@pytest.mark.parametrize("suffix", LABELLED)
def test_any_text_is_a_label(suffix: str, tmp_path: Path) -> None:
    needed(suffix)
    odd = ["a\nb", "c\rd", 'e"f', '"', "g,h", "i\tj", " k ", "", "\r\n"]
    index = [f"{each}!" for each in odd]
    release = MECHANISM.release(MatrixFile(np.eye(len(odd)), odd, index, "cor\nner"))
    release.save(tmp_path / f"a{suffix}")
    loaded = Release.load(tmp_path / f"a{suffix}")
    assert loaded.labels == MatrixLabels(odd, index, "cor\nner")
    np.testing.assert_array_equal(loaded.value, np.asarray(release.value))


@pytest.mark.parametrize("suffix", LABELLED)
@pytest.mark.parametrize("label", ["", "\n", " "])
def test_a_single_label(suffix: str, label: str, tmp_path: Path) -> None:
    needed(suffix)
    MECHANISM.release(MatrixFile(np.eye(1), [label])).save(tmp_path / f"a{suffix}")
    assert Release.load(tmp_path / f"a{suffix}").labels == MatrixLabels([label])


@pytest.mark.parametrize("suffix", [each for each in FORMATS if each not in LABELLED])
def test_a_format_without_a_place_for_labels_warns(suffix: str, tmp_path: Path) -> None:
    MECHANISM.release(LABELLED_MATRIX).save(tmp_path / "a.csv")
    loaded = Release.load(tmp_path / "a.csv")
    with pytest.warns(UserWarning, match="labels are left out"):
        loaded.save(tmp_path / f"b{suffix}")
    with pytest.warns(UserWarning, match="labels are left out"):
        process(loaded, Clamp(lower=0.0)).save(tmp_path / f"c{suffix}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Release.load(tmp_path / f"b{suffix}").save(tmp_path / f"d{suffix}")


def test_processed_releases_keep_labels(tmp_path: Path) -> None:
    MECHANISM.release(LABELLED_MATRIX).save(tmp_path / "a.csv")
    process(Release.load(tmp_path / "a.csv"), Clamp(lower=0.0)).save(tmp_path / "b.tsv")
    labels = ProcessedRelease.load(tmp_path / "b.tsv").release.labels
    assert labels == MatrixLabels(["1990", "b"], ["x;y", "z"], "id")


def test_means_keep_labels(tmp_path: Path) -> None:
    query = Mean(PublicBounds(2, norm=1.0), "add-remove")
    query.release([[0.5, 0.5]] * 100, BUDGET).save(tmp_path / "a.csv", columns=["u", "v"])
    loaded = MeanRelease.load(tmp_path / "a.csv")
    loaded.save(tmp_path / "b.csv")
    for name in ("b.csv", "b.sum.csv"):
        assert (tmp_path / name).read_text().startswith(",u,v\n")
    with pytest.warns(UserWarning, match="labels are left out"):
        loaded.save(tmp_path / "c.npy")
