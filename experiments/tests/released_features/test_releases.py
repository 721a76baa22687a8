"""Clipping, simulated noise and post-processing of released features."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from matrixdp_experiments.released_features.cells import FeatureRun
from matrixdp_experiments.released_features.heads import (
    ClipBall,
    clip_ball,
    projected_rows,
    released_moments,
    released_rows,
    shrinking_map,
)
from matrixdp_experiments.released_features.parts import Part, Parts


def run(**changed: object) -> FeatureRun:
    facts: dict[str, object] = {
        "dataset": "digits",
        "seed": 0,
        "network": "public",
        "clip": "public",
        "method": "rows",
        "records": 1000,
        "batch_size": 128,
        "steps": 1,
    }
    return FeatureRun(**(facts | changed))  # type: ignore[arg-type]


def parts_with(public: Tensor) -> Parts:
    part = Part(public, torch.zeros(len(public), dtype=torch.int64))
    far = Part(1000 + public, part.targets)
    return Parts(public=part, private=far, test=far)


def test_rows_are_clipped_to_the_norm_and_shorter_ones_stay() -> None:
    ball = ClipBall(torch.tensor([1.0, 0.0]), 2.0)
    rows = torch.tensor([[1.0, 0.0], [2.0, 0.0], [1.0, 3.0], [-99.0, 0.0]])
    assert ball.clip(rows).tolist() == [[0.0, 0.0], [0.5, 0.0], [0.0, 1.0], [-1.0, 0.0]]


def test_replacing_a_record_moves_its_row_by_2_at_most() -> None:
    rows = torch.from_numpy(np.random.default_rng(2).standard_normal((2, 500, 6)) * 10)
    ball = ClipBall(torch.full((6,), 0.3, dtype=torch.float64), 1.7)
    moved = (ball.clip(rows[0]) - ball.clip(rows[1])).norm(dim=1)
    assert float(moved.max()) <= 2.0 + 1e-12
    opposite = ball.clip(torch.stack([ball.centre + 50, ball.centre - 50]))
    assert float((opposite[0] - opposite[1]).norm()) == pytest.approx(2.0)


def test_clip_rules_depend_on_public_records_alone() -> None:
    public = torch.tensor([[0.0, 0.0, 0.3, 0.0], [0.0, 0.4, 0.1, 0.0], [0.9, 0.2, 0.2, 0.0]])
    bound = clip_ball("tanh", parts_with(public))
    assert (bound.norm, bound.centre.tolist()) == (2.0, [0.0] * 4)
    rule = clip_ball("public", parts_with(public))
    # Private rows are 1,000 away, and nobody asked them.
    np.testing.assert_allclose(rule.centre, public.numpy().mean(0), rtol=1e-6)
    distances = np.linalg.norm(public.numpy() - public.numpy().mean(0), axis=1)
    assert rule.norm == pytest.approx(float(np.median(distances)))


def test_noise_has_the_scale_of_the_run_and_of_its_block() -> None:
    rows = torch.zeros(1000, 50)
    noisy = released_rows(rows, run(noise_multiplier=3.0))
    # 50,000 numbers: the deviation is known to 0.32 per cent; 1.5 is nearly five of these.
    assert float(noisy.std()) == pytest.approx(3.0, rel=0.015)
    blocks = released_rows(rows, run(noise_multiplier=3.0, last_block_multiplier=30.0))
    # 1,000 rows in blocks of 128 leave 104 for the last one.
    assert float(blocks[:-104].std()) == pytest.approx(3.0, rel=0.015)
    assert float(blocks[-104:].std()) == pytest.approx(30.0, rel=0.05)
    assert float(blocks[-105].abs().max()) < 30.0
    assert torch.equal(released_rows(rows, run()), rows)


def test_a_seed_is_one_draw() -> None:
    rows = torch.ones(100, 3)
    again = [released_rows(rows, run(noise_multiplier=1.0, seed=one)) for one in (4, 4, 5)]
    assert torch.equal(again[0], again[1])
    assert not torch.equal(again[0], again[2])


def test_moments_have_symmetric_noise() -> None:
    rows, targets = torch.zeros(10, 200), torch.arange(10) % 2
    found = released_moments(rows, targets, 2, run(noise_multiplier=4.0))
    assert torch.equal(found.gram, found.gram.T)
    # 19,900 pairs and 200 entries of the diagonal; five deviations of each estimate.
    apart = found.gram[tuple(torch.triu_indices(200, 200, 1))]
    assert float(apart.std()) == pytest.approx(4.0 / math.sqrt(2), rel=0.025)
    assert float(found.gram.diagonal().std()) == pytest.approx(4.0, rel=0.25)
    assert float(found.sums.std()) == pytest.approx(4.0 / math.sqrt(2), rel=0.18)
    assert found.gram_noise == pytest.approx(4.0 / math.sqrt(2))


def test_moments_without_noise_are_those_of_rows_and_labels() -> None:
    rows = torch.from_numpy(np.random.default_rng(0).standard_normal((30, 4)))
    targets = torch.arange(30) % 3
    found = released_moments(rows, targets, 3, run())
    torch.testing.assert_close(found.gram, rows.T @ rows)
    for one in range(3):
        torch.testing.assert_close(found.sums[:, one], rows[targets == one].sum(0))
    assert found.counts.tolist() == [10.0, 10.0, 10.0]


def test_projected_rows() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    np.testing.assert_allclose(projected_rows(rows), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)


def test_shrinking_finds_what_noise_hides() -> None:
    generator = np.random.default_rng(9)
    truth = 12.0 * np.outer(generator.standard_normal(600), generator.standard_normal(30)) / 30
    noisy = truth + generator.standard_normal(truth.shape)
    shrunk = noisy @ shrinking_map(torch.from_numpy(noisy), 1.0).numpy()
    before, after = (np.linalg.norm(one - truth) for one in (noisy, shrunk))
    assert after < 0.4 * before
    # Noise alone becomes nothing.
    assert float(shrinking_map(torch.from_numpy(noisy - truth), 1.05).abs().max()) == 0.0


def test_shrunk_singular_values_are_those_of_gavish_and_donoho() -> None:
    noisy = np.random.default_rng(7).standard_normal((90, 12)) @ np.diag(np.linspace(0.5, 6, 12))
    left, values, right = np.linalg.svd(noisy, full_matrices=False)
    scale, ratio = 1.3, 12 / 90
    seen = values / (scale * math.sqrt(90))
    inside = np.maximum((seen**2 - ratio - 1) ** 2 - 4 * ratio, 0)
    best = np.where(seen > 1 + math.sqrt(ratio), np.sqrt(inside) / seen, 0) * scale * math.sqrt(90)
    assert 0 < np.count_nonzero(best) < 12
    found = noisy @ shrinking_map(torch.from_numpy(noisy), scale).numpy()
    np.testing.assert_allclose(found, left @ np.diag(best) @ right, atol=1e-9)
