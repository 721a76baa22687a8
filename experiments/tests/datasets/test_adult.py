"""Census records as numbers: categories and ranges that are public, and lines that are not read."""

from pathlib import Path

import numpy as np
import pytest

from matrixdp.errors import FileFormatError
from matrixdp_experiments.datasets.adult import COLUMNS, WIDTH, AdultCounts, Category, load_adult
from small_files import PERSON, RICH_PERSON

COUNTS = AdultCounts(train=3, test=2, choosing=1)


def written(folder: Path, train: list[str], test: list[str]) -> tuple[Path, Path]:
    paths = folder / "adult.data", folder / "adult.test"
    paths[0].write_text("\n".join(train) + "\n\n")
    paths[1].write_text("|1x3 Cross validator\n" + "".join(f"{line}.\n" for line in test))
    return paths


def test_columns() -> None:
    categories = [len(each.indices) for _, each in COLUMNS if isinstance(each, Category)]
    assert categories == [8, 16, 7, 14, 6, 5, 2, 41]
    assert WIDTH == 105 == sum(categories) + 6


def test_one_record(tmp_path: Path) -> None:
    files = written(tmp_path, [PERSON, RICH_PERSON, PERSON], [RICH_PERSON, PERSON])
    data = load_adult(*files, COUNTS)
    assert data.train.inputs.dtype == np.float32
    assert data.train.targets.tolist() == [0, 1, 0]
    assert data.test.targets.tolist() == [1, 0]
    assert [len(part) for part in (data.train, data.choosing_train, data.choosing)] == [3, 2, 1]
    person, rich = data.train.inputs[0], data.train.inputs[1]
    # Age, weight, education and hours in their ranges, and the eight categories of a person.
    assert person[0] == np.float32((39 - 16) / (90 - 16))
    assert person[9] == np.float32(0.077516)
    assert np.count_nonzero(person == 1.0) == 8
    # Three categories are unknown, and the weight is cut to the end of its range.
    assert np.count_nonzero(rich[1:9]) == 0
    assert rich[9] == 1.0
    assert data.train.inputs.min() >= 0.0
    assert data.train.inputs.max() <= 1.0


def test_amounts_are_on_a_logarithmic_scale(tmp_path: Path) -> None:
    files = written(tmp_path, [PERSON, RICH_PERSON, PERSON], [PERSON, PERSON])
    data = load_adult(*files, COUNTS)
    gain = next(start for number, (start, _) in enumerate(COLUMNS) if number == 10)
    assert data.train.inputs[0, gain] == np.float32(np.log1p(2174) / np.log1p(99_999))
    assert data.train.inputs[1, gain + 1] == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        PERSON.replace("State-gov", "Pirate"),
        PERSON.replace("39", "thirty"),
        PERSON.replace(", White", ""),
        PERSON.replace("<=50K", "50K"),
    ],
)
def test_lines_that_are_not_records(tmp_path: Path, wrong: str) -> None:
    files = written(tmp_path, [PERSON, wrong, PERSON], [PERSON, PERSON])
    with pytest.raises(FileFormatError, match=r"adult\.data has a line 2") as caught:
        load_adult(*files, COUNTS)
    assert "Pirate" not in str(caught.value)


def test_files_that_are_cut_short(tmp_path: Path) -> None:
    files = written(tmp_path, [PERSON] * 3, [PERSON] * 2)
    whole = files[1].read_text()
    end = whole.index("\n", 30) + 1  # of the first record
    for cut, message in ((end, "has 1 records instead of 2"), (end + 40, "has a line 3")):
        files[1].write_text(whole[:cut])
        with pytest.raises(FileFormatError, match=rf"adult\.test {message}"):
            load_adult(*files, COUNTS)
    files[1].write_bytes(b"\xff\xfe")
    with pytest.raises(FileFormatError, match=r"adult\.test cannot be read"):
        load_adult(*files, COUNTS)
