"""A folder of results in which Type I can be run on the toy data set; precision as it was."""

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
def toy_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with choices for digits; accounts take milliseconds, and so do runs."""
    # Late: this file is read where the experiments are not installed, too.
    from matrixdp_experiments.gradients import accounts  # noqa: PLC0415
    from matrixdp_experiments.gradients import experiment as type_one  # noqa: PLC0415
    from matrixdp_experiments.gradients.cells import Hyperparameters  # noqa: PLC0415
    from matrixdp_experiments.gradients.choosing import Choice, Choices  # noqa: PLC0415

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
                chosen=Hyperparameters(0.5, None if family == "plain" else 1.0),
                tried=[],
            )
            for family in ("plain", "isotropic", "mvg")
        ]
    )
    return found
