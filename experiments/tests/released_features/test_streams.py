"""Random numbers of different kinds: none of them may be a function of another."""

from pathlib import Path
from typing import get_args

import pytest
import torch

from matrixdp_experiments.released_features import heads, networks
from matrixdp_experiments.released_features.cells import (
    Selection,
    feature_run,
    network_run,
    selected_cells,
)
from matrixdp_experiments.released_features.settings import FEATURE_SETTINGS
from matrixdp_experiments.released_features.streams import Stream, stream_seed


def test_streams_of_all_seeds_differ() -> None:
    seeds = [stream_seed(one, seed) for one in get_args(Stream) for seed in (0, 1, 2, 999_999)]
    assert len(set(seeds)) == len(seeds) == 20


def test_every_kind_of_a_run_draws_from_its_own_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By watching what is seeded while a network is trained, a row released and a head begun."""
    seen: list[tuple[str, int]] = []
    weights, noise = networks.seeded_network, torch.randn

    def watched_weights(dataset: str, seed: int) -> object:
        seen.append(("weights", seed))
        return weights(dataset, seed)

    def watched_noise(shape: tuple[int, int], *, generator: torch.Generator) -> object:
        seen.append(("noise", generator.initial_seed()))
        return noise(shape, generator=generator)

    def watched_lots(*_: object, seed: int, **__: object) -> None:
        seen.append(("lots", seed))

    for module in (heads, networks):
        monkeypatch.setattr(module, "seeded_network", watched_weights)
        monkeypatch.setattr(module, "train_shuffled", watched_lots)
    monkeypatch.setattr(torch, "randn", watched_noise)
    networks.feature_parts.cache_clear()
    networks.train_network(tmp_path, network_run(FEATURE_SETTINGS["digits"], 7))
    wanted = Selection(datasets=["digits"], networks=["public"], protocols=["exact"], seeds=[7])
    (cell,) = [
        one
        for one in selected_cells(wanted)
        if (one.method, one.clip, one.mechanism, one.epsilon) == ("rows", "tanh", "imgm", 1.0)
    ]
    run = feature_run(cell)
    assert run is not None
    heads.train_head(tmp_path, run)
    networks.feature_parts.cache_clear()
    assert [kind for kind, _ in seen] == ["weights", "lots", "weights", "noise", "weights", "lots"]
    # The network of a seed begins twice with the same weights; everything else is its own.
    assert seen[0] == seen[2]
    assert len({seed for _, seed in seen}) == 5
