"""One contract for every door: a filter and an account of a ledger are paid alike, and first."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from ledger.doors import BUDGET, Door, doors, files_in, opened, path_doors
from matrixdp import Budget, BudgetExceededError, InvalidParameterError, PrivacyFilter
from matrixdp.noise.keys import release_key
from matrixdp.noise.keys.stream import NoiseStream

each_door = pytest.mark.parametrize("door", [d for d in doors() if d.release], ids=str)
each_path_door = pytest.mark.parametrize("door", path_doors(), ids=str)

ROOM = Budget(4.0, 1e-5)
NO_ROOM = Budget(0.001, 1e-5)


def new_filter(budget: Budget, relation: Any = "add-remove") -> PrivacyFilter:
    return PrivacyFilter(budget, neighbouring=relation)


def spent_by(payer: Any) -> Fraction:
    """Return the exact sum of the squares that were paid."""
    if isinstance(payer, PrivacyFilter):
        return payer._spent
    exact: Fraction = payer.balance.spent.mu_squared
    return exact


def watch_draws(monkeypatch: pytest.MonkeyPatch, payer: Any) -> list[Fraction]:
    """Return what was spent at each draw of noise, to be filled."""
    seen: list[Fraction] = []

    def drawn(context: Any, secret: Any) -> NoiseStream:
        seen.append(spent_by(payer))
        return NoiseStream(context, secret)

    monkeypatch.setattr(release_key, "NoiseStream", drawn)
    return seen


@each_door
def test_in_memory_both_pay_the_same_before_anything_is_drawn(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert door.release is not None
    costs = []
    with opened(tmp_path, ROOM) as account:
        for payer in (new_filter(ROOM), account):
            with monkeypatch.context() as patched:
                seen = watch_draws(patched, payer)
                released = door.release(payer)
            assert set(seen) == {spent_by(payer)}  # drawn, and all paid before
            costs.append(spent_by(payer))
            guarantee = getattr(released, "guarantee", None) or released.guarantee_
            assert costs[-1] == Fraction(guarantee.mu) ** 2
    assert costs[0] == costs[1] > 0


@each_door
def test_in_memory_both_refuse_alike_with_nothing_drawn(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert door.release is not None
    with opened(tmp_path, NO_ROOM) as account:
        for payer in (new_filter(NO_ROOM), account):
            seen = watch_draws(monkeypatch, payer)
            with pytest.raises(BudgetExceededError, match="does not fit"):
                door.release(payer)
            assert not seen
            assert spent_by(payer) == 0
        assert [entry.kind for entry in account.ledger.history()] == ["open"]  # type: ignore[attr-defined]


@each_door
def test_what_cannot_pay_is_refused(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    assert door.release is not None
    other = new_filter(ROOM, "replace")
    seen = watch_draws(monkeypatch, other)
    with pytest.raises(InvalidParameterError, match="neighbouring"):
        door.release(other)
    with pytest.raises(InvalidParameterError, match="privacy_filter is a Budget"):
        door.release(BUDGET)
    assert not seen
    assert spent_by(other) == 0


@each_path_door
def test_to_files_both_pay_the_same_before_anything_is_drawn(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert door.release_to is not None
    costs = []
    with opened(tmp_path, ROOM) as account:
        for number, payer in enumerate((new_filter(ROOM), account)):
            folder = tmp_path / str(number)
            folder.mkdir()
            with monkeypatch.context() as patched:
                seen = watch_draws(patched, payer)
                released = door.release_to(folder, privacy_filter=payer)
            assert set(seen) == {spent_by(payer)}  # drawn, and all paid before
            costs.append(spent_by(payer))
            guarantee = getattr(released, "guarantee", released)
            assert costs[-1] == Fraction(guarantee.mu) ** 2
        assert costs[0] == costs[1] > 0
        assert account.ledger.pending() == []  # type: ignore[attr-defined]
    names = [set(files_in(tmp_path / each)) for each in "01"]
    assert names[0] == names[1]
    assert not any(name.startswith(".") for name in names[0])


@each_path_door
def test_to_files_both_refuse_alike_with_nothing_drawn_or_written(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert door.release_to is not None
    with opened(tmp_path, NO_ROOM) as account:
        for payer in (new_filter(NO_ROOM), account):
            seen = watch_draws(monkeypatch, payer)
            with pytest.raises(BudgetExceededError, match="does not fit"):
                door.release_to(tmp_path, privacy_filter=payer)
            assert not seen
            assert spent_by(payer) == 0
    assert files_in(tmp_path) == {}


@each_path_door
def test_to_files_without_a_payer(door: Door, tmp_path: Path) -> None:
    assert door.release_to is not None
    door.release_to(tmp_path)
    assert files_in(tmp_path)
    with pytest.raises(InvalidParameterError, match="exists"):
        door.release_to(tmp_path)
    before = files_in(tmp_path)
    door.release_to(tmp_path, force=True)
    assert files_in(tmp_path).keys() == before.keys()
    assert files_in(tmp_path) != before


@each_path_door
def test_an_existing_file_costs_nothing(door: Door, tmp_path: Path) -> None:
    assert door.release_to is not None
    door.release_to(tmp_path)
    with opened(tmp_path, ROOM) as account:
        for payer in (new_filter(ROOM), account):
            with pytest.raises(InvalidParameterError, match="exists"):
                door.release_to(tmp_path, privacy_filter=payer)
            assert spent_by(payer) == 0
