"""Notebooks: the promise of an object as a table, and never an exact answer."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import matrixdp as mdp
from matrixdp.mechanisms.labelled import MatrixLabels
from matrixdp.mechanisms.release import described
from matrixdp.workloads import Prefix
from test_markup import read

BUDGET = mdp.Budget(1.0, 1e-5)
MECHANISM = mdp.IMGM(mdp.FrobeniusBall(1.0, "replace"), BUDGET)
EXACT = 765432.0
HOSTILE = "<script>alert(1)</script>"


def shown(thing: object) -> str:
    """Return the text that a notebook shows, which must be markup without anything that runs."""
    reader = read(thing._repr_html_())  # type: ignore[attr-defined]
    known = {"div", "strong", "table", "tbody", "tr", "th", "td", "p", "progress"}
    assert {tag for tag, _ in reader.tags} <= known
    assert not any(name.startswith("on") for _, attrs in reader.tags for name, _ in attrs)
    return reader.text


def test_budgets_and_guarantees_are_rounded_to_their_side() -> None:
    half = BUDGET.split(2)[0]
    assert shown(half) == "Budgetepsilon0.684148delta1e-05mu0.18954"
    promise = mdp.Guarantee.of_mu(half.mu, delta=1e-5, neighbouring="add-remove")
    assert shown(promise).startswith("Guaranteeepsilon0.684149delta1e-05mu0.189541")
    assert str(promise) in shown(promise)


def test_a_release_shows_its_promise_and_no_number_of_its_matrix() -> None:
    release = MECHANISM.release(np.full((3, 2), EXACT))
    text = shown(release)
    for said in ("3 by 2", str(release.guarantee), "IMGM", "at most 1 (FrobeniusBall)", "3.73"):
        assert said in text
    assert "7654" not in text
    assert HOSTILE in shown(described(release, HOSTILE, None))
    counts = mdp.MatrixMechanism(Prefix(4), BUDGET, neighbouring="replace").release([765432] * 4)
    assert "Prefix(4)" in shown(counts)
    assert "7654" not in shown(counts)


def test_an_account_shows_what_is_left(tmp_path: Path) -> None:
    url, keys = f"sqlite:///{tmp_path}/a.ledger", tmp_path / "a.keys"
    with mdp.ledger.Ledger.create(url, keys=keys) as ledger:
        account = ledger.open_account("clinic", BUDGET, neighbouring="replace")
        account.spend(BUDGET.split(4)[0].mu)
        text = shown(account)
    assert text.startswith("Account clinicpromise(1, 1e-05) under replacing one recordspent25")
    assert "one more release may haveepsilon 0.8" in text


def test_plans_and_progress_of_trainings() -> None:
    pytest.importorskip("torch", reason="private training needs the extra `train`")
    plan = mdp.training.TrainingPlan(
        records=100,
        lot_size=10,
        steps=20,
        clip_norm={"a": 3.0, HOSTILE: 4.0},
        delta=1e-5,
        noise_multiplier=1.0,
    )
    text = shown(plan)
    for said in ("records100", "20, which are 2 epochs", "noise multiplier1", f"4 {HOSTILE}"):
        assert said in text
    progress = mdp.training.TrainingProgress(plan=plan, steps_spent=5)
    assert shown(progress) == str(progress)
    assert '<progress value="5" max="20">' in progress._repr_html_()


@pytest.mark.parametrize(
    ("shape", "labels"),
    [
        ((4, 3), MatrixLabels(["a", "b", "c"], ["w", "x", "y", "z"])),
        ((1, 3), MatrixLabels(["a", "b", "c"], None)),
        ((60, 50), None),
    ],
)
def test_plots(shape: tuple[int, int], labels: MatrixLabels | None) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    release = described(MECHANISM.release(np.zeros(shape)), None, labels)
    figure, mine = pyplot.subplots()
    try:
        axes = release.plot(mine)
        assert axes is mine
        if labels is not None:
            assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b", "c"]
        figure.canvas.draw()
        if shape == (4, 3):
            drawn = axes.images[0].get_array()
            np.testing.assert_array_equal(drawn, np.asarray(release))
            assert release.plot().figure is not figure  # a figure of its own
    finally:
        pyplot.close("all")


def test_answers_of_a_workload_are_drawn_with_their_errors() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    counts = mdp.MatrixMechanism(Prefix(4), BUDGET, neighbouring="replace").release([10] * 4)
    axes = counts.plot()
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), counts.answers)
    pyplot.close("all")


def test_names_of_a_data_frame_are_drawn() -> None:
    pandas = pytest.importorskip("pandas")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    frame = pandas.DataFrame({"age": [1.0, 2.0], "visits": [3.0, 4.0]}, index=["ann", "bob"])
    axes = MECHANISM.release(frame).plot()
    assert [text.get_text() for text in axes.get_yticklabels()] == ["ann", "bob"]
    pyplot.close("all")


def test_parts_are_imported_when_they_are_used() -> None:
    code = (
        "import sys, matrixdp as mdp; before = set(sys.modules); mdp.queries.Gram; mdp.ledger;"
        "print('numpy' in before, 'numpy' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


def test_a_part_that_lacks_its_extra_says_so_when_it_is_used() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'sklearn', 'zarr')))\n"
        "from matrixdp import *\n"
        "import matrixdp as mdp\n"
        "assert not {'training', 'estimators', 'distributed'} & set(dir(mdp))\n"
        "for name in ('training', 'estimators', 'distributed'):\n"
        "    try: getattr(mdp, name)\n"
        "    except mdp.errors.MissingExtraError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("pip install '.[") == 3


def test_no_bar_is_drawn_where_a_notebook_could_not_show_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a notebook rich needs ipywidgets, and warns where there are none.
    from matrixdp.cli.shared.progress import progress_bar  # noqa: PLC0415

    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    with progress_bar(2.0, "Reading") as advance:
        advance(1.0)
    assert capsys.readouterr() == ("", "")
