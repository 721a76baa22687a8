"""``matrixdp audit``, driven as a user would."""

import pytest

from cli.changed_words import changed
from cli.json_answers import answer
from matrixdp import IMGM, privacy_mu
from matrixdp.audit import (
    audit_claim,
    audit_sampled_claim,
    rank_one_delta,
    rank_one_noise_scale,
)
from matrixdp.cli.main import main

CLAIM = ["--noise-scale", "2", "--sensitivity", "1", "--epsilon", "1", "--delta", "1e-5"]
RUN = ["audit", "run", "--neighbouring", "add-remove", "--mechanism"]
SMALL = ["--shape", "2x2", "--epsilon", "4", "--delta", "1e-5"]


def test_audit_claim(capsys: pytest.CaptureFixture[str]) -> None:
    reply = answer(capsys, "audit", "claim", *CLAIM, "--steps", "4", code=5)
    found = audit_claim(2.0, 1.0, epsilon=1.0, delta=1e-5, steps=4)
    assert reply["true_epsilon"] == found.true_epsilon
    assert reply["true_delta"] == found.true_delta
    assert reply["needed_noise_scale"] == found.needed_noise_scale
    assert reply["holds"] is False
    assert main(["audit", "claim", *CLAIM]) == 5
    assert "is FALSE" in capsys.readouterr().out
    assert main(["audit", "claim", *changed(CLAIM, "--noise-scale", "4")]) == 0
    assert "the claim holds" in capsys.readouterr().out


def test_audit_claim_of_sampled_steps(capsys: pytest.CaptureFixture[str]) -> None:
    steps = ["--steps", "400", "--sampling-rate", "0.01"]
    reply = answer(
        capsys, "audit", "claim", *changed(CLAIM, "--noise-scale", "0.7"), *steps, code=5
    )
    found = audit_sampled_claim(0.7, 1.0, epsilon=1.0, delta=1e-5, steps=400, sampling_rate=0.01)
    assert reply["holds"] is False
    assert reply["sampling_rate"] == 0.01
    assert reply["true_epsilon"] == found.true_epsilon.upper
    assert reply["epsilon_at_least"] == found.true_epsilon.lower
    assert reply["true_delta"] == found.true_delta.upper
    assert reply["delta_at_least"] == found.true_delta.lower
    assert main(["audit", "claim", *CLAIM, *steps]) == 0
    assert "the claim holds" in capsys.readouterr().out
    assert main(["audit", "claim", *changed(CLAIM, "--noise-scale", "0.7"), *steps]) == 5
    assert "the claim is FALSE" in capsys.readouterr().out


def test_audit_rank_one(capsys: pytest.CaptureFixture[str]) -> None:
    claim = ["--epsilon", "2", "--delta", "1e-5"]
    reply = answer(capsys, "audit", "rank-one", "--shape", "5x4", *claim, code=5)
    scale = rank_one_noise_scale(20, 2.0, 1e-5)
    assert reply["numbers"] == 20
    assert reply["frobenius_error"] == scale
    assert reply["delta_at_least"] == rank_one_delta(20, scale, 2.0)
    assert reply["refuted"] is True
    assert main(["audit", "rank-one", "--shape", "5x4", *claim]) == 5
    assert "the claim is FALSE" in capsys.readouterr().out
    assert main(["audit", "rank-one", "--shape", "1x3", *claim]) == 0
    assert "not refuted" in capsys.readouterr().out


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("steps", ["1", pytest.param("3", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("mechanism", ["imgm", "analytic", "classic", "mvg", "matrix"])
def test_audit_run(
    mechanism: str, steps: str, relation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    small = changed(SMALL, "--epsilon", "1") if mechanism == "classic" else SMALL
    small = [*small, "--steps", steps]
    run = ["audit", "run", "--mechanism", mechanism, "--neighbouring", relation, *small]
    run += ["--samples", "300", "--seed", "3"]
    reply = answer(capsys, *run)
    assert reply["refuted"] is False
    assert reply["neighbouring"] == relation
    assert reply == answer(capsys, *run)  # the same seed, the same answer
    assert main(run) == 0
    assert "not refuted" in capsys.readouterr().out


def test_mvg_is_audited_at_the_least_norm_bound(capsys: pytest.CaptureFixture[str]) -> None:
    run = [*RUN, "mvg", *SMALL, "--samples", "1000"]
    for norm_bound in ("0.5", "0.9", "30"):
        assert answer(capsys, *run, "--norm-bound", norm_bound)["refuted"] is False
    assert main([*run, "--norm-bound", "0.49"]) == 2
    assert "below half of" in capsys.readouterr().err


def test_several_releases_are_audited_together(capsys: pytest.CaptureFixture[str]) -> None:
    # A mu of each release alone would be a fifth of the whole's, and far below what is found.
    reply = answer(
        capsys, *RUN, "imgm", *changed(SMALL, "--epsilon", "10"),
        "--steps", "25", "--samples", "4000",
    )  # fmt: skip
    claimed, found = reply["claimed"], reply["at_least"]
    assert isinstance(claimed, dict)
    assert isinstance(found, dict)
    assert claimed["mu"] == pytest.approx(privacy_mu(10.0, 1e-5), rel=1e-9)
    assert 0.8 * claimed["mu"] < found["mu"] <= claimed["mu"]


@pytest.mark.parametrize("mechanism", ["imgm", "mvg", "matrix"])
def test_audit_run_on_exact_releases(mechanism: str, capsys: pytest.CaptureFixture[str]) -> None:
    reply = answer(
        capsys, *RUN, mechanism, *SMALL, "--samples", "200", "--exact",
        "--confidence", "0.999999999",
    )  # fmt: skip
    assert reply["samples"] == 200


def test_a_refuted_mechanism_is_a_defect(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The mechanism audited is calibrated for half of the sensitivity that it is said to have.
    class Careless(IMGM):
        def simulate(self, matrix: object, generator: object) -> object:  # type: ignore[override]
            return super().simulate(2.0 * matrix, generator)  # type: ignore[operator,arg-type]

    monkeypatch.setattr("matrixdp.cli.commands.audit.run.IMGM", Careless)
    assert main([*RUN, "imgm", *SMALL, "--samples", "2000"]) == 1
    output = capsys.readouterr()
    assert "REFUTED" in output.out
    assert output.err == "matrixdp: Careless does not keep its claim\n"
