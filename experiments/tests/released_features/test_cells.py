"""The grid of released features: what is compared, what shares a run, what is refused."""

from collections import Counter

import msgspec
import pytest

from matrixdp.errors import InvalidParameterError
from matrixdp_experiments.grid.runs import run_key
from matrixdp_experiments.released_features.cells import (
    FeatureCell,
    FeatureRun,
    Selection,
    false_claims,
    feature_run,
    network_run,
    selected_cells,
)
from matrixdp_experiments.released_features.settings import FEATURE_SETTINGS

WHOLE = selected_cells(Selection(datasets=["mnist"], seeds=[0]))


def cell(**changed: object) -> FeatureCell:
    facts: dict[str, object] = {
        "dataset": "mnist",
        "network": "public",
        "protocol": "exact",
        "clip": "public",
        "method": "rows",
        "mechanism": "imgm",
        "epsilon": 1.0,
        "seed": 0,
    }
    return FeatureCell(**(facts | changed))  # type: ignore[arg-type]


def test_every_combination_once() -> None:
    assert len(set(WHOLE)) == len(WHOLE)
    counts = Counter((one.protocol, one.method, one.mechanism) for one in WHOLE)
    for protocol in ("exact", "paper"):
        for mechanism in ("imgm", "analytic", "classic", "mvg"):
            # Two networks, two clip rules, four epsilons.
            assert counts.pop((protocol, "rows", mechanism)) == 16
    for method in ("projected", "shrunk", "linear", "corrected", "moments"):
        assert counts.pop(("exact", method, "imgm")) == 8
    assert counts.pop(("exact", "rows", "none")) == 4
    assert counts.pop(("exact", "linear", "none")) == 2
    assert counts.pop(("exact", "rows", "public")) == 1
    assert not counts


def test_imgm_and_the_analytic_gaussian_are_one_run() -> None:
    for epsilon in (0.1, 10.0):
        runs = [feature_run(cell(mechanism=name, epsilon=epsilon)) for name in ("imgm", "analytic")]
        assert run_key(runs[0]) == run_key(runs[1])
    others = [
        cell(mechanism="mvg"),
        cell(clip="tanh"),
        cell(network="random"),
        cell(protocol="paper"),
        cell(seed=1),
        cell(method="projected"),
        cell(epsilon=5.0),
    ]
    assert len({run_key(feature_run(one)) for one in [cell(), *others]}) == 8


def test_a_run_says_what_its_features_are() -> None:
    run = feature_run(cell(mechanism="mvg"))
    assert run is not None
    assert (run.records, run.batch_size, run.steps) == (49_500, 256, 9_667)
    assert run.last_block_multiplier is not None
    # A network that is trained otherwise makes other features: its heads are other runs.
    assert run.network_run == run_key(network_run(FEATURE_SETTINGS["mnist"], 0))
    untrained = feature_run(cell(network="random"))
    assert untrained is not None
    assert untrained.network_run is None
    assert msgspec.json.decode(msgspec.json.encode(run), type=FeatureRun) == run
    solved = feature_run(cell(method="moments"))
    assert solved is not None
    assert (solved.steps, solved.learning_rate) == (1, None)
    assert feature_run(cell(mechanism="classic", epsilon=5.0)) is None


def test_claims_that_do_not_hold_are_named_before_a_run() -> None:
    wanted = Selection(datasets=["mnist"], mechanisms=["imgm", "mvg"], epsilons=[1.0], seeds=[0, 1])
    said = false_claims(selected_cells(wanted))
    # MVG's claim holds, as it adds far more noise than it needs; IMGM's is said once.
    (sentence,) = said
    assert sentence.startswith("protocol paper, mnist, imgm: the claimed epsilon of 1 is false")
    assert sentence.endswith("its noise spends 241 at delta 1e-05")
    exact = Selection(datasets=["mnist"], protocols=["exact"])
    assert false_claims(selected_cells(exact)) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"datasets": ["cora"]}, "dataset='cora'"),
        ({"networks": ["private"]}, "network='private'"),
        ({"protocols": ["amplified"]}, "protocol='amplified'"),
        ({"clips": ["none"]}, "clip='none'"),
        ({"methods": ["ridge"]}, "method='ridge'"),
        ({"mechanisms": ["laplace"]}, "mechanism='laplace'"),
        ({"epsilons": [float("nan")]}, "epsilon=nan"),
        ({"epsilons": [1.0, float("inf")]}, "epsilon=inf"),
        ({"epsilons": [-1.0]}, "epsilon=-1.0"),
        ({"seeds": [-1]}, "seed=-1 is not between 0 and 999,999"),
        ({"seeds": [0, 1_000_000]}, "seed=1000000 is not between"),
        ({"methods": ["moments"], "protocols": ["paper"]}, "no cell of the grid"),
    ],
)
def test_what_is_not_in_the_grid(changed: dict[str, list[object]], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        selected_cells(Selection(**({"datasets": ["mnist"]} | changed)))  # type: ignore[arg-type]
