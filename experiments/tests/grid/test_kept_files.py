"""Choices and accounts of several processes at a time: none is lost."""

from pathlib import Path
from threading import Event, Thread

import pytest

from matrixdp_experiments.gradients import account_book
from matrixdp_experiments.gradients.account_book import AccountBook
from matrixdp_experiments.gradients.accounts import Account, Promise
from matrixdp_experiments.gradients.cells import Hyperparameters
from matrixdp_experiments.gradients.planning import Choice, Choices
from matrixdp_experiments.grid.json_files import alone_with


def choice(dataset: str, rate: float) -> Choice:
    return Choice(dataset=dataset, family="plain", chosen=Hyperparameters(rate, None), tried=[])


def promise(epsilon: float) -> Promise:
    return Promise(epsilon=epsilon, delta=1e-5, sampling_rate=0.1, steps=10, lot_size=100)


def test_choices_of_two_processes_are_both_kept(tmp_path: Path) -> None:
    one, other = Choices(tmp_path), Choices(tmp_path)
    one.add([choice("mnist", 0.1)])
    other.add([choice("adult", 0.2)])
    one.add([choice("cora", 0.3)])
    other.add([choice("mnist", 0.4)])
    found = Choices(tmp_path)
    rates = {name: found.chosen(name, "plain").learning_rate for name in ("mnist", "adult", "cora")}
    assert rates == {"mnist": 0.4, "adult": 0.2, "cora": 0.3}


def test_accounts_of_two_processes_are_both_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    multipliers = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(
        account_book,
        "account",
        lambda name, asked: Account(
            mechanism=name, promise=asked, noise_multiplier=next(multipliers)
        ),
    )
    one, other = AccountBook(tmp_path), AccountBook(tmp_path)
    one.account("rdp", promise(1.0))
    other.account("rdp", promise(2.0))
    # The first one stays, so that both train with the same noise.
    assert other.account("rdp", promise(1.0)).noise_multiplier == 1.0
    assert one.account("rdp", promise(2.0)).noise_multiplier == 2.0
    found = AccountBook(tmp_path)
    kept = [found.account("rdp", promise(epsilon)).noise_multiplier for epsilon in (1.0, 2.0)]
    assert kept == [1.0, 2.0]


def test_one_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="the system has no such locks")
    path, begun, entered = tmp_path / "new" / "file.json", Event(), Event()

    def enter() -> None:
        begun.set()
        with alone_with(path):
            entered.set()

    with alone_with(path):
        thread = Thread(target=enter)
        thread.start()
        assert begun.wait(10.0)
        assert not entered.wait(0.2)
    assert entered.wait(10.0)
    thread.join()
