"""``query marginals``: tables by a few columns at a time, with their names in every export."""

import csv
import importlib
import json
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import matrixdp as mdp
from cli.json_answers import answer
from matrixdp.cli.main import main
from matrixdp.mechanisms.workload_release import WorkloadRelease
from matrixdp.queries import (
    Bins,
    Categories,
    ContingencyTable,
    CrossMoment,
    Features,
    JointMoments,
    Mean,
    PublicBounds,
    Query,
)
from matrixdp.rounding import shown_up
from matrixdp.workloads import CellNames, Identity, Prefix, Product, Ranges, marginals
from matrixdp.workloads.cell_names import named_queries

# So little noise that counts can be recognised: only for these tests.
CLEAR = ["--mu", "1000", "--delta", "1e-6", "--neighbouring", "replace", "--force"]
PROMISE = ["--epsilon", "1", "--delta", "1e-6", "--neighbouring", "replace"]
COLUMNS = [
    *("--categories", "sex=Female,Male", "--categories", "race=White,Black", "--other", "race"),
    *("--categories", "income=<=50K,>50K", "--bins", "age=0,40,100"),
]
LABELS = {
    "sex": ["Female", "Male"],
    "race": ["White", "Black", "other"],
    "income": ["<=50K", ">50K"],
    "age": ["[0; 40)", "[40; 100]"],
}
ROWS = [
    ("Female", "White", ">50K", 30),
    ("Male", "Martian", "<=50K", 50),
    ("Male", "Black", ">50K", 60),
    ("Female", "", ">50K", 39),
] * 5


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["sex,race,income,age", *(",".join(map(str, row)) for row in ROWS)]
    Path("in.csv").write_text("\n".join(lines) + "\n")


def released(*options: str) -> WorkloadRelease:
    assert main(["query", "marginals", "in.csv", "out.npz", *COLUMNS, *options, *CLEAR]) == 0
    return WorkloadRelease.load("out.npz")


def exported(*options: str) -> list[list[str]]:
    assert main(["workload", "export", "out.npz", "out.csv", *options, "--force"]) == 0
    with Path("out.csv").open(newline="") as file:
        return list(csv.reader(file))


def count(**wanted: str) -> int:
    """Count records by hand."""
    cells = [
        {
            "sex": sex,
            "race": race if race in LABELS["race"] else "other",
            "income": income,
            "age": "[0; 40)" if age < 40 else "[40; 100]",
        }
        for sex, race, income, age in ROWS
    ]
    return sum(all(cell[name] == label for name, label in wanted.items()) for cell in cells)


@pytest.mark.parametrize("ways", [1, 2, 3])
def test_all_tables_of_so_many_columns_by_name(ways: int) -> None:
    names = ["sex", "race", "income"]
    release = released("--of", ",".join(names), "--ways", str(ways))
    assert release.attributes == tuple(CellNames(name, tuple(LABELS[name])) for name in names)
    heading, *rows = exported()
    assert heading == ["query", "answer", "standard_error"]
    expected = [
        dict(zip(group, cell, strict=True))
        for group in combinations(names, ways)
        for cell in product(*(LABELS[name] for name in group))
    ]
    shown = [", ".join(f"{name}={label}" for name, label in one.items()) for one in expected]
    assert [row[0] for row in rows] == shown
    for row, wanted in zip(rows, expected, strict=True):
        assert float(row[1]) == pytest.approx(count(**wanted), abs=0.1)


def test_one_table_long_and_wide(capsys: pytest.CaptureFixture[str]) -> None:
    released("--of", "age,sex,race", "--ways", "3")
    order = ["race", "age", "sex"]
    heading, *long = exported("--table", ",".join(order))
    assert heading == ["query", "answer", "standard_error"]
    assert [row[0] for row in long] == [
        ", ".join(f"{name}={label}" for name, label in zip(order, cell, strict=True))
        for cell in product(*(LABELS[name] for name in order))
    ]
    heading, *wide = exported("--table", ",".join(order), "--wide")
    assert heading[:3] == ["query", "age=[0; 40), sex=Female", "age=[0; 40), sex=Male"]
    assert [row[0] for row in wide] == [f"race={label}" for label in LABELS["race"]]
    assert [cell for row in wide for cell in row[1:]] == [row[1] for row in long]
    for index, (race, age, sex) in enumerate(product(*(LABELS[name] for name in order))):
        assert float(long[index][1]) == pytest.approx(count(race=race, age=age, sex=sex), abs=0.1)
    shown = shown_up(float(long[0][2]), 3)
    assert f"standard error of each entry: {shown}\n" in capsys.readouterr().err
    exported("--table", ",".join(order), "--wide", "--json")
    errors = json.loads(capsys.readouterr().out)["standard_errors"]
    assert [str(error) for row in errors for error in row] == [row[2] for row in long]
    whole = exported("--table", ",".join(order), "--wide", "--non-negative", "--integer")
    assert "standard error" not in capsys.readouterr().err
    numbers = [[int(float(cell)) for cell in row[1:]] for row in whole[1:]]
    assert np.ravel(numbers).tolist() == [round(float(row[1])) for row in long]
    one = exported("--table", "sex", "--wide")
    assert one[0] == ["query", "count"]
    assert float(one[1][1]) == pytest.approx(count(sex="Female"), abs=0.1)


def test_a_release_without_names_is_exported_by_numbers() -> None:
    np.save("counts.npy", np.arange(6).reshape(2, 3))
    asked = ["workload", "answer", "counts.npy", "out.npz", "--workload", "marginals:2x3:2"]
    assert main([*asked, *CLEAR]) == 0
    assert "attributes" not in json.loads(Path("out.npz.json").read_text())
    rows = exported("--table", "1,0", "--wide")
    assert [row[0] for row in rows] == ["query", "1=0", "1=1", "1=2"]
    assert float(rows[3][2]) == pytest.approx(5.0, abs=0.1)
    assert exported()[1][0] == "0 x 0"
    assert main(["workload", "export", "out.npz", "t.npy", "--table", "1,0", "--wide"]) == 0
    assert np.load("t.npy").shape == (3, 2)


def test_a_preview_reads_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.csv").unlink()
    preview = answer(
        capsys, "query", "marginals", "in.csv", "out.npz", *COLUMNS, *PROMISE, "--preview"
    )
    assert preview["queries"] == sum(
        len(LABELS[a]) * len(LABELS[b]) for a, b in combinations(LABELS, 2)
    )
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--of", "sex,height"], "--of names 'height'"),
        (["--ways", "5"], "--ways 5 must be from 1 to the number of columns, 4"),
        (["--ways", "0"], "--ways 0"),
        (["--other", "race,age"], "Option '--other' is given more than once"),
        (["--of", "sex,sex"], "must be names, each once"),
    ],
)
def test_what_is_refused(
    options: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", "marginals", "in.csv", "out.npz", *COLUMNS, *options, *PROMISE]) == 2
    assert named in capsys.readouterr().err
    assert not Path("out.npz").exists()


def test_values_that_are_not_listed_are_refused_unless_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["query", "histogram", "in.csv", "out.csv", "--categories", "race=White,Black"]
    assert main([*asked, *PROMISE]) == 2
    error = capsys.readouterr().err
    assert "a value that is not among its categories" in error
    assert "--other" in error
    assert "Martian" not in error
    assert main([*asked, "--other", "race", *CLEAR]) == 0
    release = mdp.Release.load("out.csv")
    np.testing.assert_allclose(release.value.ravel(), [5, 5, 10], atol=0.1)
    assert main([*asked, "--other", "sex", *CLEAR]) == 2
    assert "--other names 'sex'" in capsys.readouterr().err


def test_a_category_for_all_others() -> None:
    race = Categories("race", ["White", 7], other="rest")
    assert race.labels == ["White", "7", "rest"]
    assert race.cells(["White", 7, "7", None, 7.5, [1]]).tolist() == [0, 1, 2, 2, 2, 2]
    wrong: Any
    for wrong in ("White", "7", 3):
        with pytest.raises(mdp.InvalidParameterError, match="other="):
            Categories("race", ["White", 7], other=wrong)


def test_releases_of_queries_have_labels_and_the_query_in_words() -> None:
    table = ContingencyTable([Categories("sex", ["F", "M"]), Bins("age", [0, 40, 90])], "replace")
    budget, data = mdp.Budget(1.0, 1e-5), [("F", 3.0), ("M", 50.0)]
    release = table.release(data, budget)
    assert isinstance(release.value, np.ndarray)
    assert release.query == str(table) == "counts of records by sex (F, M), age ([0; 40), [40; 90])"
    assert release.labels is not None
    assert release.labels.index == ["sex=F", "sex=M"]
    release.save("saved.csv")
    table.release_to("direct.csv", data, budget)
    for name in ("saved.csv", "direct.csv"):
        loaded = mdp.Release.load(name)
        assert loaded.query == release.query
        assert loaded.labels == release.labels
        assert Path(name).read_text().splitlines()[0] == ",age=[0; 40),age=[40; 90]"
        assert mdp.Release.verify(name) == release.guarantee
    queries = importlib.import_module("matrixdp.queries")
    named = queries.PublicBounds(["age", "hours"], lower=0, upper=9)
    for query, index in (
        (queries.Sum(named, "replace"), ["sum"]),
        (queries.Mean(named, "replace", 2), ["mean"]),
        (queries.Gram(named, "replace"), ["age", "hours"]),
        (queries.SampleCovariance(named, "replace", 2), ["age", "hours"]),
    ):
        answer_of = query.release([[1.0, 2.0], [3.0, 4.0]], budget)
        assert answer_of.labels.columns == ["age", "hours"]
        assert answer_of.labels.index == index
        answer_of.save("named.csv", force=True)
        assert Path("named.csv").read_text().startswith(",age,hours")
        assert mdp.Release.verify("named.csv") == answer_of.guarantee
    total = importlib.import_module("matrixdp.queries").ClippedRecords
    bounds = importlib.import_module("matrixdp.queries").PublicBounds(1, norm=1.0)
    plain = total(bounds, "replace").release([[3.0]], budget)
    assert plain.labels is None
    assert plain.query.startswith("number of records")


PARTS = PublicBounds(["age"], norm=9.0), PublicBounds(["hours"], norm=9.0)
BOTH = PublicBounds(["age", "hours"], lower=0, upper=9)


@pytest.mark.parametrize(
    ("query", "columns", "index"),
    [
        (JointMoments(*PARTS, "replace"), ["age", "hours"], ["age", "hours"]),
        (CrossMoment(*PARTS, "replace"), ["hours"], ["age"]),
        (Features(BOTH, "replace", 2), ["age", "hours"], None),
        (Mean(BOTH, "add-remove"), ["age", "hours"], ["mean"]),
    ],
    ids=["joint", "cross", "features", "mean"],
)
def test_names_of_other_answers(query: Query, columns: list[str], index: list[str] | None) -> None:
    budget, data = mdp.Budget(1.0, 1e-5), [[1.0, 2.0], [3.0, 4.0]]
    release: Any = query.release(data, budget)
    assert (release.labels.columns, release.labels.index) == (columns, index)
    release.save("saved.csv")
    direct: Any = query.release_to("direct.csv", data, budget)
    assert direct.labels == release.labels == type(direct).load("saved.csv").labels
    heads = [Path(name).read_text().splitlines()[0] for name in ("saved.csv", "direct.csv")]
    assert heads == [("" if index is None else ",") + ",".join(columns)] * 2


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--categories", "sex=Male,Female"], "sex"),
        (["--bins", "sex=0,1"], "sex"),
        (["--bins", "age=0,100"], "age"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ["query", "marginals", "in.csv", "out.npz"],
        ["query", "groups", "in.csv", "out.csv", "--by", "sex", "--columns", "age", "--norm", "9"],
        ["plan", "--query", "histogram"],
    ],
    ids=["marginals", "groups", "plan"],
)
def test_a_column_whose_values_are_said_twice_is_refused(
    command: list[str], words: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, *COLUMNS, *words, *PROMISE]) == 2
    assert f"name {name!r} more than once" in capsys.readouterr().err


def test_names_of_queries() -> None:
    names = [CellNames("a", ("x", "y", "z")), CellNames("b", ("u", "v"))]
    workload = Product([Ranges(3, longest=2), Identity(2)])
    assert list(named_queries(workload, names))[-2:] == ["a=y..z, b=u", "a=y..z, b=v"]
    assert list(named_queries(Product([Prefix(3)]), names[:1])) == ["a=x..x", "a=x..y", "a=x..z"]
    assert list(named_queries(marginals([3, 2], [()]), names)) == ["all"]
    dense = mdp.workloads.Dense([[1.0, 2.0]])
    assert list(named_queries(dense, names[1:])) == ["row 0 of b"]
    budget = mdp.Budget(1.0, 1e-5)
    for wrong in (names, [names[0]], [names[1], names[1]]):
        with pytest.raises(mdp.InvalidParameterError, match="attributes"):
            mdp.MatrixMechanism(
                marginals([2, 2], [(0,)]), budget, neighbouring="replace", attributes=wrong
            )
