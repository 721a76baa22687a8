"""Folders for toy results and their report; precision as it was before a test."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from matrixdp.privacy import Accountant, noise_multiplier_for, plan_epsilon


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    """Undo what a run on a GPU sets for the whole process, and so for the tests that follow."""
    torch = sys.modules.get("torch")
    former = None if torch is None else torch.get_float32_matmul_precision()
    yield
    if torch is not None:
        torch.set_float32_matmul_precision(former)


@pytest.fixture
def empty_docs(tmp_path: Path) -> Path:
    """Return a folder for a report: a page between whose markers there is no result yet."""
    docs = tmp_path / "docs"
    for name in ("tables", "figures"):
        (docs / name).mkdir(parents=True)
    marked = "<!-- {0}: begin -->\nold\n<!-- {0}: end -->\n"
    text = f"before\n{marked.format('type-one')}{marked.format('type-two')}after\n"
    (docs / "experiments.md").write_text(text)
    return docs


@pytest.fixture
def toy_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with choices for digits; accounts take milliseconds, and so do runs."""
    # Late: this file is read where the experiments are not installed, too.
    from matrixdp_experiments.gradients import accounts  # noqa: PLC0415
    from matrixdp_experiments.gradients import experiment as type_one  # noqa: PLC0415
    from matrixdp_experiments.gradients.cells import Hyperparameters  # noqa: PLC0415
    from matrixdp_experiments.gradients.planning import Choice, Choices, Tried  # noqa: PLC0415

    def quick_noise(epsilon: float, delta: float, **given: Any) -> float:
        if given["sampling_rate"] == 1.0 or given["accountant"] is not Accountant.PLD:
            return noise_multiplier_for(epsilon, delta, **given)
        # In place of the tight accountant, which is tested elsewhere: a little less than RDP.
        return 0.9 * noise_multiplier_for(epsilon, delta, **given | {"accountant": Accountant.RDP})

    monkeypatch.setattr(accounts, "noise_multiplier_for", quick_noise)
    monkeypatch.setattr(
        accounts, "plan_epsilon", lambda plan, delta, _: plan_epsilon(plan, delta, Accountant.RDP)
    )
    monkeypatch.setattr(type_one, "train_and_test", lambda run: 0.5 + 0.01 * (run.seed % 10))
    found = tmp_path / "results"
    Choices(found / "type_one").add(
        [
            Choice(
                dataset="digits",
                family=family,
                chosen=candidate,
                tried=[Tried(candidate, 0.9)],
            )
            for family in ("plain", "isotropic", "mvg")
            for candidate in [Hyperparameters(0.5, None if family == "plain" else 1.0)]
        ]
    )
    return found
