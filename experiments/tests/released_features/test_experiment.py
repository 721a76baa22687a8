"""Type II from end to end, on scikit-learn's digits: networks, releases, heads, report."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from matrixdp_experiments.command import main
from matrixdp_experiments.grid.outcomes import AnyRun, Outcome, read_outcomes
from matrixdp_experiments.grid.runner import Tell, Work
from matrixdp_experiments.grid.runs import Run, run_key
from matrixdp_experiments.grid.tasks import RecordsTask
from matrixdp_experiments.released_features import experiment as type_two
from matrixdp_experiments.released_features import heads
from matrixdp_experiments.released_features.cells import (
    FeatureCell,
    FeatureRun,
    Selection,
    feature_run,
    network_run,
    selected_cells,
)
from matrixdp_experiments.released_features.experiment import run_grid
from matrixdp_experiments.released_features.heads import train_head
from matrixdp_experiments.released_features.networks import (
    seeded_network,
    train_network,
    weights_path,
)
from matrixdp_experiments.released_features.parts import load_parts, new_network
from matrixdp_experiments.released_features.settings import FEATURE_SETTINGS
from matrixdp_experiments.report.features_table import FeatureRow
from matrixdp_experiments.report.tables import read_table, table_as_csv

DIGITS = FEATURE_SETTINGS["digits"]
CELLS = selected_cells(
    Selection(
        datasets=["digits"],
        networks=["public"],
        clips=["public"],
        mechanisms=["none", "public", "imgm", "analytic"],
        epsilons=[1.0, 10.0],
        seeds=[0],
    )
)
ARGUMENTS = [
    *("run", "type-two", "--dataset", "digits", "--network", "public", "--clip", "public"),
    *("--mechanism", "none,public,imgm,analytic", "--epsilon", "1,10", "--seed", "0"),
]


@contextmanager
def quiet(_: Sequence[AnyRun]) -> Iterator[Tell]:
    yield lambda _run, failure: None if failure is None else pytest.fail(failure)


def work_in(folder: Path) -> Work:
    return Work(folder=folder / "type_two", parallel=1, progress=quiet)


def times(folder: Path) -> dict[str, int]:
    paths = sorted((folder / "type_two").rglob("*.*"))
    return {path.name: path.stat().st_mtime_ns for path in paths}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of results in which the cells were run; nobody may write to it."""
    folder = tmp_path_factory.mktemp("results")
    assert run_grid(CELLS, work_in(folder)).failed == 0
    return folder


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs end at once; networks leave weights, as they do."""
    monkeypatch.setattr(type_two, "train_head", pretended_accuracy)
    monkeypatch.setattr(type_two, "train_network", pretended_network)


def pretended_accuracy(_: Path, run: FeatureRun) -> float:
    return round(0.9 / (1.0 + (run.noise_multiplier or 0.0)) - 0.01 * run.seed, 6)


def pretended_network(folder: Path, run: Run) -> float:
    path = weights_path(folder, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(new_network(run.dataset).state_dict(), path)
    return 0.8


def outcome_of(folder: Path, **wanted: object) -> Outcome[FeatureRun]:
    (cell,) = [
        one for one in CELLS if all(getattr(one, name) == value for name, value in wanted.items())
    ]
    return read_outcomes(folder / "type_two", FeatureRun)[run_key(feature_run(cell))]


def test_heads_learn_and_noise_costs(finished: Path) -> None:
    accuracy = {
        (method, epsilon): outcome_of(
            finished,
            method=method,
            mechanism="imgm" if epsilon else "none",
            epsilon=epsilon,
            protocol="exact",
        ).accuracy
        for method, epsilon in [
            *(("rows", None), ("linear", None), ("rows", 1.0), ("rows", 10.0)),
            *(("moments", 1.0), ("moments", 10.0), ("corrected", 10.0)),
        ]
    }
    assert accuracy["rows", None] > 0.85
    assert accuracy["linear", None] > 0.9
    assert accuracy["rows", 1.0] < 0.4
    # Moments hide a record among all others; a row has to hide it alone.
    assert accuracy["moments", 1.0] > 0.7
    assert accuracy["moments", 10.0] > accuracy["corrected", 10.0] > accuracy["rows", 10.0]
    (network,) = read_outcomes(finished / "type_two" / "networks", Run).values()
    assert network.accuracy > 0.7
    assert network.run.records == 150
    assert network.provenance.commit


def test_claimed_and_true_epsilon_in_the_table(finished: Path, empty_docs: Path) -> None:
    rows = reported(finished, empty_docs)
    paper = [row for row in rows if row.protocol == "paper" and row.mechanism == "imgm"]
    # On the toy q is 128/1497; at a claimed 1 and 0.1 the noise spends 13 and 1.4 times as much.
    found = {row.epsilon: float(row.true_epsilon) for row in paper}
    assert found["1"] == pytest.approx(13.188, rel=1e-3)
    assert found["0.1"] == pytest.approx(1.404, rel=1e-3)
    exact = [row for row in rows if row.protocol == "exact" and row.epsilon]
    assert all(float(row.true_epsilon) <= float(row.epsilon) for row in exact if row.true_epsilon)
    assert {row.covers for row in exact if row.method == "moments"} == {"features and label"}
    unlike = [row for row in rows if row.epsilon and row.method != "moments"]
    assert {row.covers for row in unlike} == {"features; label in clear"}
    assert all(row.network in {"public", "random"} for row in rows)
    page = (empty_docs / "tables/type_two.md").read_text()
    drawn = (empty_docs / "figures/type_two.svg").read_text()
    assert "at true ε 13.2" in page
    assert page.count("features are covered, and labels are in clear") == 2  # once a protocol
    assert "labels by private moments only" in drawn
    assert ">13.2<" in drawn
    assert "of IMGM, and of the classic Gaussian" in drawn
    assert "Not run: MNIST, CIFAR-10, SVHN, IMDB." in page


def reported(finished: Path, docs: Path) -> list[FeatureRow]:
    """Make a report; return the rows of its table."""
    table = finished / "type_two.csv"
    assert main(["report", "--results", str(finished), "--docs", str(docs)]) == 0
    rows = read_table(table, FeatureRow)
    assert table_as_csv(rows, FeatureRow) == table.read_bytes()
    return rows


def test_a_report_is_the_results(finished: Path, empty_docs: Path, tmp_path: Path) -> None:
    rows = reported(finished, empty_docs)
    for cell in CELLS:
        if cell.epsilon not in {1.0, 10.0} or (cell.protocol, cell.epsilon) == ("paper", 10.0):
            continue
        outcome = outcome_of(finished, **{name: getattr(cell, name) for name in cell.__slots__})
        (row,) = [one for one in rows if is_of(one, cell)]
        assert row.accuracy == f"{outcome.accuracy:.5f}"
        assert row.run == run_key(outcome.run)
        assert all((row.commit, row.device, row.torch, row.seconds))
    same = [
        [(row.run, row.accuracy) for row in rows if row.mechanism == one and row.method == "rows"]
        for one in ("imgm", "analytic")
    ]
    assert same[0] == same[1]
    notes = {row.note for row in rows if row.mechanism == "classic" and row.epsilon == "5"}
    (note,) = notes
    assert note.startswith(
        "does not apply: the classic formula is proven for an epsilon of at most"
    )
    assert {row.note for row in rows if row.network == "random" and row.mechanism == "mvg"} == {
        "not run"
    }
    # Where the files of single runs were not kept, the table makes the same page.
    page = empty_docs / "tables/type_two.md"
    text = page.read_text()
    (tmp_path / "type_two.csv").write_bytes((finished / "type_two.csv").read_bytes())
    assert reported(tmp_path, empty_docs) == rows
    assert page.read_text() == text


def is_of(row: FeatureRow, cell: FeatureCell) -> bool:
    names = ("network", "protocol", "clip", "method", "mechanism")
    epsilon = "" if cell.epsilon is None else f"{cell.epsilon:g}"
    return row.epsilon == epsilon and all(getattr(row, one) == getattr(cell, one) for one in names)


def test_a_seed_gives_the_same_run_again(finished: Path) -> None:
    outcome = outcome_of(finished, method="rows", mechanism="imgm", epsilon=10.0, protocol="exact")
    assert train_head(finished / "type_two", outcome.run) == outcome.accuracy


def test_the_network_never_sees_private_records(tmp_path: Path) -> None:
    run = network_run(DIGITS, 0)
    short = Run(**{name: getattr(run, name) for name in run.__struct_fields__} | {"steps": 3})
    weights = []
    for change in (0.0, 1.0):
        load_parts.cache_clear()
        load_parts("digits").private.inputs.add_(change)
        train_network(tmp_path, short)
        weights.append(torch.load(weights_path(tmp_path, short), weights_only=True))
    load_parts.cache_clear()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    # The part that is public is every tenth record.
    parts, together = load_parts("digits"), DIGITS.records
    assert (len(parts.public.inputs), len(parts.private.inputs)) == (150, together - 150)


@pytest.mark.usefixtures("pretended")
def test_a_grid_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[FeatureRun] = []

    def interrupted(folder: Path, run: FeatureRun) -> float:
        calls.append(run)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return pretended_accuracy(folder, run)

    monkeypatch.setattr(type_two, "train_head", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_grid(CELLS, work_in(tmp_path))
    before = times(tmp_path)
    assert run_grid(CELLS, work_in(tmp_path)).failed == 0
    after = times(tmp_path)
    assert before.items() <= after.items()
    # Each run once, and once more for the one that was interrupted.
    assert len(calls) == len({run_key(run) for run in calls}) + 1
    assert run_grid(CELLS, work_in(tmp_path)).failed == 0
    assert times(tmp_path) == after


@pytest.mark.usefixtures("pretended")
def test_false_claims_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ARGUMENTS, "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert "digits, imgm: the claimed epsilon of 1 is false, its noise spends 13.2" in said
    main([*ARGUMENTS, "--protocol", "exact", "--results", str(tmp_path), "--json"])
    shown = capsys.readouterr()
    assert "false" not in shown.err
    tally = json.loads(shown.out)
    assert (tally["made"], tally["failed"], tally["inapplicable"]) == (0, 0, 0)
    assert tally["finished"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "type-two", "--dataset", "adult"], "adult"),
        (["run", "type-two", "--method", "magic"], "magic"),
        (["run", "type-two", "--network", "private"], "private"),
        (["run", "type-one", "--protocol", "exact"], "type-one has no option --protocol"),
        (["choose", "type-two"], "type-two"),
    ],
)
def test_wrong_input(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--results", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_head_does_not_begin_as_the_head_of_a_network_did(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body was trained together with that one, so it would classify before any training."""
    (cell,) = [one for one in CELLS if one.mechanism == "none" and one.method == "rows"]
    run = feature_run(cell)
    assert run is not None
    begun = []

    def keep_first_weights(task: RecordsTask, *_: object, **__: object) -> None:
        begun.append(next(task.model.parameters()).detach().cpu().clone())

    monkeypatch.setattr(heads, "train_shuffled", keep_first_weights)
    train_head(finished / "type_two", run)
    train_head(finished / "type_two", run)
    own = [next(seeded_network("digits", seed).head.parameters()) for seed in range(3)]
    assert torch.equal(begun[0], begun[1])
    assert begun[0].shape == own[0].shape
    assert not any(torch.isclose(begun[0], one).any() for one in own)
