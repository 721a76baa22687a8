"""The page says of the choices of learning rates and clip norms what is stored."""

from pathlib import Path

from matrixdp_experiments.gradients.account_book import AccountBook
from matrixdp_experiments.gradients.planning import Choice, Tried, best_of, candidate_runs
from matrixdp_experiments.gradients.settings import PAPER_DATASETS
from matrixdp_experiments.grid.json_files import read_json
from matrixdp_experiments.grid.runs import run_key
from pages.gradient_runs import FOLDER, OUTCOMES

ROOT = Path(__file__).resolve().parents[3]
PAGE = " ".join((ROOT / "docs" / "experiments.md").read_text().split())
CHOICES = {
    (one.dataset, one.family): one for one in read_json(FOLDER / "choices.json", list[Choice])
}


def test_choices_at_an_end_of_what_was_tried() -> None:
    at_an_end = []
    for (name, family), choice in CHOICES.items():
        # With most gradients clipped, the product is what counts.
        steps = [
            round(one.candidate.learning_rate * (one.candidate.clip_norm or 1.0), 9)
            for one in choice.tried
        ]
        chosen = round(choice.chosen.learning_rate * (choice.chosen.clip_norm or 1.0), 9)
        if family != "mvg" and chosen in {min(steps), max(steps)}:
            at_an_end.append((name, family))
    both = [(name, family) for name in ("mnist", "adult") for family in ("plain", "isotropic")]
    assert sorted(at_an_end) == sorted([*both, ("cora", "isotropic")])
    assert "of MNIST, of Adult and of Cora with noise are at an end of what was tried" in PAGE


def test_mvg_had_nothing_to_choose() -> None:
    for name in PAPER_DATASETS:
        choice = CHOICES[name, "mvg"]
        first, second = choice.tried
        assert first.accuracy == second.accuracy
        assert choice.chosen == first.candidate


def test_choices_are_those_of_the_stored_runs() -> None:
    book = AccountBook(FOLDER)
    for name in PAPER_DATASETS:
        for family, pairs in candidate_runs(name, book).items():
            tried = [Tried(candidate, OUTCOMES[run_key(run)].accuracy) for candidate, run in pairs]
            assert CHOICES[name, family] == best_of(name, family, tried)
