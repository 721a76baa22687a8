"""The finished runs of Type I, and what candidates for learning rate and clip norm reached."""

from pathlib import Path

from matrixdp.experiments.account_book import promise_of
from matrixdp.experiments.accounts import Account
from matrixdp.experiments.cells import Run
from matrixdp.experiments.json_files import read_json
from matrixdp.experiments.outcomes import read_outcomes
from matrixdp.experiments.settings import REFERENCE_EPSILON, SETTINGS

__all__ = ["OUTCOMES", "candidates_reached"]

_FOLDER = Path(__file__).resolve().parents[2] / "results" / "type_one"
OUTCOMES = list(read_outcomes(_FOLDER, Run).values())


def candidates_reached(dataset: str) -> tuple[list[float], list[float], list[float]]:
    """Return accuracies in per cent, sorted: without noise, with independent and with MVG's."""
    plain, isotropic, mvg = [], [], []
    for one in OUTCOMES:
        run, reached = one.run, 100 * one.accuracy
        if (run.dataset, run.split) != (dataset, "choosing"):
            continue
        if run.clip_norm is None:
            plain.append(reached)
        elif run.layers:
            mvg.append(reached)
        else:
            assert run.noise_multiplier == _reference_multiplier(dataset)
            isotropic.append(reached)
    return sorted(plain), sorted(isotropic), sorted(mvg)


def _reference_multiplier(dataset: str) -> float | None:
    """Return the recorded multiplier of ``imgm-pld`` at epsilon 1 of runs that choose."""
    promise = promise_of(SETTINGS[dataset], "choosing", "imgm-pld", REFERENCE_EPSILON)
    # Read and not asked from an `AccountBook`, which writes what it does not find.
    accounts = read_json(_FOLDER / "accounts.json", list[Account])
    (found,) = (one for one in accounts if (one.mechanism, one.promise) == ("imgm-pld", promise))
    return found.noise_multiplier
