"""Cells of the grid of released features, and the runs behind them: equal runs are made once.

What is trained depends on the noise and not on its name. IMGM and the analytic Gaussian add the
same noise to a row, so that their cells share a run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, cast, get_args

import msgspec

from matrixdp.errors import InvalidParameterError
from matrixdp.privacy import Budget
from matrixdp.rounding import shown_exactly, shown_up
from matrixdp_experiments.grid.runs import DELTA, Run, run_key
from matrixdp_experiments.options import check_known
from matrixdp_experiments.released_features.accounts import (
    MECHANISMS,
    ReleaseAccount,
    ReleaseProtocol,
    moments_account,
    rows_account,
)
from matrixdp_experiments.released_features.settings import (
    EPSILONS,
    HEAD_RATE,
    FeatureSetting,
    feature_setting_of,
)
from matrixdp_experiments.released_features.streams import stream_seed

__all__ = [
    "CLIPS",
    "METHODS",
    "NETWORKS",
    "PROTOCOLS",
    "STEPWISE",
    "Clip",
    "FeatureCell",
    "FeatureRun",
    "Method",
    "Network",
    "Selection",
    "account_of",
    "false_claims",
    "feature_run",
    "network_run",
    "selected_cells",
    "unreported_claims",
]

Network = Literal["public", "random"]
"""What computes the features: a network trained on the public part, or one with random weights."""

Clip = Literal["tanh", "public"]
"""What rows are clipped to: the bound that tanh gives, or a ball around the public part's mean."""

Method = Literal["rows", "projected", "shrunk", "linear", "corrected", "moments"]
"""What is released and how the head is made from it."""

NETWORKS: tuple[Network, ...] = get_args(Network)
CLIPS: tuple[Clip, ...] = get_args(Clip)
PROTOCOLS: tuple[ReleaseProtocol, ...] = get_args(ReleaseProtocol)
METHODS: dict[Method, str] = {
    "rows": "the network's head on the rows",
    "projected": "rows projected on the clip ball",
    "shrunk": "singular values shrunk",
    "linear": "linear head on the rows",
    "corrected": "linear head, corrected for the noise",
    "moments": "linear head from private moments",
}
STEPWISE: tuple[Method, ...] = ("rows", "projected", "shrunk")
"""The methods that train the network's own head by steps; the others solve for a linear one."""

Name = TypeVar("Name", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureCell:
    """A row of the results; without noise there is no epsilon, and the protocol is ``exact``."""

    dataset: str
    network: Network
    protocol: ReleaseProtocol
    clip: Clip
    method: Method
    mechanism: str
    epsilon: float | None
    seed: int


class FeatureRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that the accuracy of a head depends on, besides the program.

    ``network_run`` is the key of the run that trained the network; it is missing for random ones.
    ``noise_multiplier`` is missing where no noise is added, and ``last_block_multiplier`` where all
    rows have the same. A head that is solved for has one step, and neither a learning rate nor a
    seed of its own.
    """

    experiment: str = "type-two"
    dataset: str
    seed: int
    network: Network
    network_run: str | None = None
    clip: Clip
    method: Method
    records: int
    batch_size: int
    steps: int
    learning_rate: float | None = None
    head_seed: int | None = None
    noise_multiplier: float | None = None
    last_block_multiplier: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which part of the grid is wanted; None stands for everything."""

    datasets: Sequence[str]
    networks: Sequence[str] | None = None
    protocols: Sequence[str] | None = None
    clips: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    mechanisms: Sequence[str] | None = None
    epsilons: Sequence[float] | None = None
    seeds: Sequence[int] | None = None


def selected_cells(wanted: Selection) -> list[FeatureCell]:
    """Return the cells of a part of the grid: data sets, then seeds, then networks.

    Seeds are an outer loop, so that a grid that is cut short has every mechanism with fewer seeds.
    Cells of one network are together, so that its features are computed once.

    Raises
    ------
    InvalidParameterError
        If a name is not known, a seed or an epsilon is out of range, or nothing of the grid has all
        that is asked for.
    """
    for seed in wanted.seeds or ():
        stream_seed("network", seed)  # raises before any run if the seed is out of range
    for epsilon in wanted.epsilons or ():
        Budget(epsilon, DELTA)  # the claim itself, before a protocol divides it
    networks = _known(wanted.networks, NETWORKS, "network")
    cells = [
        cell
        for setting in map(feature_setting_of, wanted.datasets)
        for seed in (setting.seeds if wanted.seeds is None else wanted.seeds)
        for network in networks
        for cell in _cells_of(wanted, setting.name, network, seed)
    ]
    if not cells:
        raise InvalidParameterError(
            "no cell of the grid has all that is asked for: methods other than rows have the "
            "mechanism imgm, the protocol exact and the clip rule public"
        )
    return cells


def _cells_of(
    wanted: Selection, dataset: str, network: Network, seed: int
) -> Iterable[FeatureCell]:
    mechanisms = _known(wanted.mechanisms, tuple(MECHANISMS), "mechanism")
    methods = _known(wanted.methods, tuple(METHODS), "method")
    for protocol in _known(wanted.protocols, PROTOCOLS, "protocol"):
        for clip in _known(wanted.clips, CLIPS, "clip"):
            for method in methods:
                for mechanism in mechanisms:
                    if not _in_grid(network, protocol, clip, method, mechanism):
                        continue
                    noisy = mechanism not in {"none", "public"}
                    for epsilon in _epsilons(wanted, protocol) if noisy else (None,):
                        yield FeatureCell(
                            dataset=dataset,
                            network=network,
                            protocol=protocol,
                            clip=clip,
                            method=method,
                            mechanism=mechanism,
                            epsilon=epsilon,
                            seed=seed,
                        )


def _in_grid(
    network: Network, protocol: ReleaseProtocol, clip: Clip, method: Method, mechanism: str
) -> bool:
    """Return whether a combination is compared: all for rows, the rest at its best."""
    if mechanism == "public":
        # It releases nothing, so there is one cell of it.
        return (network, protocol, clip, method) == ("public", "exact", "public", "rows")
    if mechanism == "none":
        # A protocol is about noise. The linear head without noise is the limit of those with it.
        return protocol == "exact" and (
            method == "rows" or (method == "linear" and clip == "public")
        )
    return method == "rows" or (protocol, clip, mechanism) == ("exact", "public", "imgm")


def _epsilons(wanted: Selection, protocol: ReleaseProtocol) -> Sequence[float]:
    return EPSILONS[protocol] if wanted.epsilons is None else wanted.epsilons


def _known(asked: Sequence[str] | None, names: tuple[Name, ...], what: str) -> tuple[Name, ...]:
    """Return the names that are asked for, or raise if one is not known."""
    for one in asked or ():
        check_known(one, names, what)
    return names if asked is None else cast("tuple[Name, ...]", tuple(asked))


def account_of(cell: FeatureCell) -> ReleaseAccount:
    """Return the noise of a cell, which must have an epsilon."""
    setting = feature_setting_of(cell.dataset)
    if cell.epsilon is None:
        raise InvalidParameterError(f"mechanism={cell.mechanism!r} adds no noise to account for")
    if cell.method == "moments":
        return moments_account(setting, cell.epsilon)
    return rows_account(setting, cell.mechanism, cell.protocol, cell.epsilon)


def feature_run(cell: FeatureCell) -> FeatureRun | None:
    """Return the run behind a cell; None where its mechanism does not apply."""
    setting = feature_setting_of(cell.dataset)
    noise = ReleaseAccount() if cell.epsilon is None else account_of(cell)
    if noise.refusal is not None:
        return None
    trained_by = network_run(setting, cell.seed) if cell.network == "public" else None
    stepwise = cell.method in STEPWISE
    last = noise.last_block_multiplier
    return FeatureRun(
        dataset=cell.dataset,
        seed=cell.seed,
        network=cell.network,
        network_run=None if trained_by is None else run_key(trained_by),
        clip=cell.clip,
        method=cell.method,
        records=setting.private_records,
        batch_size=setting.batch_size if stepwise else setting.private_records,
        steps=setting.steps if stepwise else 1,
        learning_rate=HEAD_RATE if stepwise else None,
        head_seed=stream_seed("head", cell.seed) if stepwise else None,
        noise_multiplier=noise.noise_multiplier,
        last_block_multiplier=None if last == noise.noise_multiplier else last,
    )


def network_run(setting: FeatureSetting, seed: int) -> Run:
    """Return the training of the whole network on the public part."""
    return Run(
        experiment="type-two",
        dataset=setting.name,
        split="test",
        seed=seed,
        records=setting.public_records,
        lot_size=setting.public_batch_size,
        steps=setting.public_steps,
        learning_rate=setting.public_rate,
        momentum=0.0,
        augmented=setting.augmented,
    )


def false_claims(cells: Sequence[FeatureCell]) -> list[str]:
    """Return a sentence for each claim of the protocol ``paper``, with what it really spends."""
    found: dict[tuple[str, str, float], str] = {}
    for cell in cells:
        if cell.protocol != "paper" or cell.epsilon is None:
            continue
        true = account_of(cell).true_epsilon
        # A claim may also hold, where a mechanism adds far more noise than it needs.
        if true is not None and true > cell.epsilon:
            found[cell.dataset, cell.mechanism, cell.epsilon] = (
                f"protocol paper, {cell.dataset}, {cell.mechanism}: the claimed epsilon of "
                f"{shown_exactly(cell.epsilon)} is false, its noise spends {shown_up(true, 3)} at "
                f"delta {shown_exactly(DELTA)}"
            )
    return list(found.values())


def unreported_claims(cells: Sequence[FeatureCell]) -> list[str]:
    """Return a sentence for each epsilon off the grid of its protocol.

    A run knows its noise alone, so that a report finds the runs of the epsilons it knows.
    """
    others = dict.fromkeys(
        (cell.protocol, cell.epsilon)
        for cell in cells
        if cell.epsilon is not None and cell.epsilon not in EPSILONS[cell.protocol]
    )
    return [
        f"protocol {protocol} has no epsilon of {shown_exactly(epsilon)} on its grid: its runs are "
        "made and kept, but no report shows them"
        for protocol, epsilon in others
    ]
