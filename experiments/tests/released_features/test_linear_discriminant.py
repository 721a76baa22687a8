"""The linear head from moments: against scikit-learn, and against the statistics of its noise."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from matrixdp_experiments.released_features.linear_discriminant import (
    NoisyMoments,
    _noise_of_squares,
    _shrunk,
    _shrunk_mean,
    linear_discriminant,
    moments_of_rows,
)


def some_rows(count: int, seed: int = 3) -> tuple[Tensor, Tensor]:
    """Return rows of three classes that differ in their means, with a common covariance."""
    generator = np.random.default_rng(seed)
    targets = np.arange(count) % 3  # equally many: scikit-learn weighs classes by their priors
    means = np.array([[0.4, 0, 0, 0.1], [0, 0.4, 0, 0.1], [0.1, 0.1, 0.4, 0.1]])
    spread = np.array([[0.2, 0.1, 0, 0], [0, 0.15, 0, 0], [0, 0, 0.1, 0.05], [0, 0, 0, 0.1]])
    rows = means[targets] + generator.standard_normal((count, 4)) @ spread
    return torch.from_numpy(rows), torch.from_numpy(targets)


def scores(head: tuple[Tensor, Tensor], rows: Tensor) -> Tensor:
    return rows @ head[0] + head[1]


def test_without_noise_it_is_the_textbook_method() -> None:
    analysis = pytest.importorskip("sklearn.discriminant_analysis")
    rows, targets = some_rows(2001)
    head = linear_discriminant(moments_of_rows(rows, targets, 3, 0.0))
    book = analysis.LinearDiscriminantAnalysis(solver="lsqr", priors=[1 / 3] * 3)
    book.fit(rows.numpy(), targets.numpy())
    ours, theirs = scores(head, rows).numpy(), book.decision_function(rows.numpy())
    # Scores are compared with each other, so what all classes share does not matter.
    ours, theirs = (one - one.mean(axis=1, keepdims=True) for one in (ours, theirs))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    assert head.accuracy(rows, targets) == pytest.approx(book.score(rows.numpy(), targets.numpy()))
    assert head.accuracy(rows, (targets + 1) % 3) < 0.2


def test_the_gram_matrix_is_corrected_for_what_noise_adds() -> None:
    clean, targets = some_rows(20_000)
    scale = 2.0
    noise = torch.from_numpy(np.random.default_rng(8).standard_normal((20_000, 4)))
    corrected = moments_of_rows(clean + scale * noise, targets, 3, scale)
    left = corrected.gram - clean.T @ clean
    # Six standard deviations of the largest entry of either kind; without the correction the
    # diagonal would be off by many times that.
    tolerance = 6 * math.sqrt(2) * scale**2 * math.sqrt(20_000) * 1.2
    assert float(left.abs().max()) < tolerance
    uncorrected = moments_of_rows(clean + scale * noise, targets, 3, 0.0)
    assert float((uncorrected.gram - clean.T @ clean).diagonal().min()) > 10 * tolerance
    assert corrected.sum_noise.tolist() == pytest.approx(
        [scale * math.sqrt(float((targets == one).sum())) for one in range(3)]
    )


def test_the_noise_that_is_left_in_the_gram_matrix_has_the_stated_size() -> None:
    generator, width, count, scale = np.random.default_rng(4), 40, 500, 0.3
    clean = generator.standard_normal((count, width))
    clean /= np.linalg.norm(clean, axis=1, keepdims=True)
    targets = torch.zeros(count, dtype=torch.int64)
    noisy = torch.from_numpy(clean + scale * generator.standard_normal((count, width)))
    found = moments_of_rows(noisy, targets, 1, scale)
    left = found.gram.numpy() - clean.T @ clean
    apart = left[~np.eye(width, dtype=bool)]
    # 780 pairs: the deviation is known to 2.5 per cent; 12 is nearly five of these.
    assert found.gram_noise == pytest.approx(apart.std(), rel=0.12)
    # The semicircle law: the deviation of the eigenvalues.
    spread = np.sqrt(np.mean(np.linalg.eigvalsh(left) ** 2))
    assert math.sqrt(width) * found.gram_noise == pytest.approx(spread, rel=0.15)


def test_squares_of_noisy_means_have_the_stated_variance() -> None:
    generator = np.random.default_rng(6)
    inverse = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=torch.float64)
    mean = torch.tensor([3.0, -2.0, 1.0, 0.5], dtype=torch.float64)
    variance = 0.3
    drawn = torch.from_numpy(generator.standard_normal((4, 200_000)))
    noisy = mean[:, None] + math.sqrt(variance) * drawn
    squares = (inverse[:, None] * noisy * noisy).sum(0)
    # Estimated from each draw, and right on average; 200,000 draws leave about 0.3 per cent.
    variances = torch.full((200_000,), variance, dtype=torch.float64)
    stated = _noise_of_squares(inverse[:, None] * noisy, inverse, variances)
    assert float(stated.mean()) == pytest.approx(float(squares.var()), rel=0.02)
    bias = float(squares.mean() - (inverse * mean**2).sum())
    assert bias == pytest.approx(variance * float(inverse.sum()), rel=0.02)


def test_shrinking_keeps_what_stands_out_and_drops_what_could_be_noise() -> None:
    values = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
    assert _shrunk(values, torch.zeros(3)).tolist() == pytest.approx([-2.0, -1.0, 3.0])
    # Their variance is 7: half of it noise keeps half, as much noise keeps nothing.
    assert _shrunk(values, torch.full((3,), 3.5)).tolist() == pytest.approx([-1.0, -0.5, 1.5])
    assert _shrunk(values, torch.full((3,), 9.0)).tolist() == [0.0, 0.0, 0.0]
    assert _shrunk(torch.ones(2), torch.ones(2)).tolist() == [0.0, 0.0]
    mean = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert _shrunk_mean(mean, 0.0).tolist() == [3.0, 4.0]
    assert _shrunk_mean(mean, 6.25).tolist() == pytest.approx([1.5, 2.0])
    assert _shrunk_mean(mean, 100.0).tolist() == [0.0, 0.0]
    assert _shrunk_mean(torch.zeros(2), 1.0).tolist() == [0.0, 0.0]


def test_knowing_the_noise_makes_a_better_head() -> None:
    rows, targets = some_rows(6000)
    wide = torch.cat([rows, torch.zeros(6000, 60, dtype=torch.float64)], dim=1)
    noise = torch.from_numpy(np.random.default_rng(1).standard_normal(wide.shape))
    known, unknown = (
        linear_discriminant(moments_of_rows(wide + 5.0 * noise, targets, 3, one)).accuracy(
            wide, targets
        )
        for one in (5.0, 0.0)
    )
    assert known > unknown + 0.1


def test_negative_counts_do_no_harm() -> None:
    moments = NoisyMoments(
        gram=torch.eye(2, dtype=torch.float64),
        sums=torch.tensor([[1.0, 0.5], [0.0, 0.5]], dtype=torch.float64),
        counts=torch.tensor([10.0, -3.0], dtype=torch.float64),
        gram_noise=1.0,
        sum_noise=torch.ones(2, dtype=torch.float64),
    )
    head = linear_discriminant(moments)
    assert bool(torch.isfinite(head.weights).all())
    assert bool(torch.isfinite(head.offsets).all())
