"""The page states the learning rates and clip norms that were chosen, as they are stored."""

from pathlib import Path

from matrixdp_experiments.gradients.account_book import AccountBook
from matrixdp_experiments.gradients.choosing import Choice, Tried, best_of, candidate_runs
from matrixdp_experiments.gradients.settings import PAPER_DATASETS, SETTINGS
from matrixdp_experiments.grid.json_files import read_json
from matrixdp_experiments.grid.runs import run_key
from pages.gradient_runs import FOLDER, OUTCOMES

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "experiments.md").read_text()
CHOICES = {
    (one.dataset, one.family): one for one in read_json(FOLDER / "choices.json", list[Choice])
}


def shown(choice: Choice) -> str:
    chosen = choice.chosen
    (reached,) = {one.accuracy for one in choice.tried if one.candidate == chosen}
    numbers = [one for one in (chosen.learning_rate, chosen.clip_norm) if one is not None]
    return f"{', '.join(f'{one:g}' for one in numbers)} ({100 * reached:.1f})"


def test_what_was_chosen() -> None:
    for name in PAPER_DATASETS:
        cells = (shown(CHOICES[name, family]) for family in ("plain", "isotropic", "mvg"))
        assert f"\n| {SETTINGS[name].title} | {' | '.join(cells)} |\n" in PAGE


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
    assert sum(family != "mvg" for _, family in CHOICES) == 10
    text = " ".join(PAGE.split())
    assert "Five of the ten choices without MVG are at an end of what was tried" in text
    assert "both of MNIST, both of Adult and that of Cora with noise" in text


def test_mvg_had_nothing_to_choose() -> None:
    assert "MVG's two candidates reach the same accuracy on every data set" in " ".join(
        PAGE.split()
    )
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
