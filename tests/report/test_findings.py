"""Evidence of a report: only what is proven again, added up on the private side."""

import math
import shutil
from pathlib import Path

import pytest

from matrixdp import Budget, InvalidParameterError
from matrixdp.ledger import Ledger
from matrixdp.report import report_on
from report.conftest import small_release

pytestmark = pytest.mark.usefixtures("folder")


def mu_of(name: str) -> float:
    (verified,) = report_on([name]).proven
    return verified.guarantee.mu


def test_proven_files_add_up_in_squares() -> None:
    found = report_on(["ball.npy", "box.csv", "w.npz"])
    assert found.problems == 0
    whole = found.together
    assert whole is not None
    expected = math.sqrt(sum(mu_of(name) ** 2 for name in ("ball.npy", "box.csv", "w.npz")))
    assert whole.mu == pytest.approx(expected, rel=1e-15)
    assert whole.mu >= max(map(mu_of, ("ball.npy", "box.csv", "w.npz")))
    assert (whole.delta, whole.neighbouring) == (1e-6, "replace")


def test_one_file_is_worth_what_it_states() -> None:
    (verified,) = report_on(["ball.npy"]).proven
    assert report_on(["ball.npy"]).together == verified.guarantee
    assert verified.guarantee.epsilon == 1.0


def test_added_records_count_twice_among_replaced_ones() -> None:
    whole = report_on(["ball.npy", "added.csv"]).together
    assert whole is not None
    expected = math.hypot(mu_of("ball.npy"), 2 * mu_of("added.csv"))
    assert whole.mu == pytest.approx(expected, rel=1e-15)
    assert whole.neighbouring == "replace"
    alone = report_on(["added.csv", "added.csv"]).together
    assert alone is not None
    assert (alone.mu, alone.neighbouring) == (mu_of("added.csv"), "add-remove")


def test_a_copy_costs_nothing_and_another_release_does() -> None:
    shutil.copy("box.csv", "copy.csv")
    shutil.copy("box.csv.json", "copy.csv.json")
    whole = report_on(["box.csv", "copy.csv"]).together
    assert whole is not None
    assert whole.mu == mu_of("box.csv")
    small_release().save("again.npy")
    twice = report_on(["ball.npy", "again.npy"]).together
    assert twice is not None
    assert twice.mu > 1.4 * mu_of("ball.npy")


def test_what_is_not_proven_is_not_believed() -> None:
    content = bytearray(Path("ball.npy").read_bytes())
    content[-1] ^= 1
    Path("bad.npy").write_bytes(content)
    shutil.copy("ball.npy.json", "bad.npy.json")
    Path("alone.csv").write_text("1,2\n")
    Path("odd.csv").write_text("1,2\n")
    Path("odd.csv.json").write_text("{}")
    found = report_on(["bad.npy", "box.csv", "alone.csv", "odd.csv"])
    assert found.problems == 3
    reasons = [file.reason for file in found.files]
    assert "its digest differs" in reasons[0]
    assert reasons[1] == ""
    assert "alone.csv.json is missing" in reasons[2]
    assert "not a statement" in reasons[3]
    assert [file.verified is None for file in found.files] == [True, False, True, True]
    whole = found.together
    assert whole is not None
    assert whole.mu == mu_of("box.csv")
    assert report_on(["bad.npy"]).together is None


def test_what_cannot_be_reported_on() -> None:
    with pytest.raises(InvalidParameterError, match="names no file"):
        report_on([])
    with pytest.raises(InvalidParameterError, match="not a file"):
        report_on(["nowhere.csv"])
    with pytest.raises(InvalidParameterError, match="ledger and account together"):
        report_on(["ball.npy"], account="clinic")


def test_a_ledger_and_its_files(tmp_path: Path) -> None:
    from matrixdp import IMGM, FrobeniusBall  # noqa: PLC0415

    ball = FrobeniusBall(1.0, "replace")
    with Ledger.create(f"sqlite:///{tmp_path}/a.ledger", keys=tmp_path / "a.keys") as ledger:
        whole = ledger.open_account("clinic", Budget(4.0, 1e-5), neighbouring="replace")
        ann = ledger.open_account("clinic/ann", Budget(2.0, 1e-5), neighbouring="replace")
        bob = ledger.open_account("clinic/bob", Budget(2.0, 1e-5), neighbouring="replace")
        for account, name in ((whole, "a.npy"), (ann, "b.npy")):
            IMGM(ball, Budget(0.5, 1e-6)).release_to(name, [[1.0, 2.0]], privacy_filter=account)
        found = report_on(["a.npy", "b.npy"], ledger=ledger, account="clinic")
        assert found.problems == 0
        known = found.account
        assert known is not None
        assert known.mu is not None
        assert known.mu == pytest.approx(Budget(4.0, 1e-5).mu, rel=1e-15)
        assert len(known.in_words.payments) == 2
        # What another account paid is not covered by this one's promise; nor what nobody paid.
        other = report_on(["a.npy", "b.npy", "box.csv"], ledger=ledger, account=bob.name)
        assert other.account is not None
        assert len(other.account.findings) == other.problems == 3
        assert "account clinic paid for it" in " ".join(other.account.findings)
        assert "no ledger paid for it" in " ".join(other.account.findings)
        claims = ledger.open_account(
            "other", Budget(1.0, 1e-5), neighbouring="replace", claims_delta=1e-6
        )
        mixed = report_on(["box.csv"], ledger=ledger, account=claims.name)
        assert mixed.account is not None
        assert mixed.account.mu is None
