"""Scenes, textures and views: numbers from a seed, and nothing but that."""

from dataclasses import fields

import torch

from matrixdp_experiments.procedural.draws import Draws
from matrixdp_experiments.procedural.rendering import LAYERS, SCENE_SIDE, Layers, rendered
from matrixdp_experiments.procedural.scenes import drawn_pairs
from matrixdp_experiments.procedural.textures import SIDE, texture_bank
from matrixdp_experiments.procedural.views import VIEW_SIDE, plain_views, random_views

CPU = torch.device("cpu")


def images_of(seed: int) -> torch.Tensor:
    draws = Draws.of(seed, CPU)
    bank = texture_bank(4, draws)
    return torch.cat([rendered(layers, bank) for layers in drawn_pairs(2, 4, draws)])


def test_a_seed_gives_the_same_scenes_and_another_gives_others() -> None:
    first = images_of(1)
    assert first.shape == (4, 3, SCENE_SIDE, SCENE_SIDE)
    assert torch.equal(first, images_of(1))
    assert not torch.equal(first, images_of(2))
    assert float(first.min()) >= 0.0
    assert float(first.max()) <= 1.0


def test_a_pair_shows_one_scene_and_pairs_differ() -> None:
    first, second = images_of(3).split(2)
    assert not torch.equal(first, second)
    assert float((first - second).abs().mean()) < float((first - second.flip(0)).abs().mean())


def test_textures_are_packed_bytes_of_normalised_fields() -> None:
    bank = texture_bank(6, Draws.of(0, CPU))
    assert bank.dtype == torch.int32
    assert bank.shape == (6 * SIDE * SIDE,)
    planes = torch.stack([(bank >> shift) & 255 for shift in (0, 8, 16)]).view(3, 6, -1)
    assert torch.equal(bank >> 24, torch.zeros_like(bank))
    assert float(planes.double().std(dim=(0, 2)).min()) > 20


def blank(count: int) -> Layers:
    """Return scenes with no blob at all."""
    draws = Draws.of(0, CPU)
    layers, _ = drawn_pairs(count, 2, draws)
    return Layers(
        **{field.name: getattr(layers, field.name) for field in fields(layers)}
        | {"opacity": torch.zeros(count, LAYERS)}
    )


def test_a_blob_without_opacity_is_not_seen() -> None:
    bank = texture_bank(2, Draws.of(0, CPU))
    assert not rendered(blank(2), bank).any()


def test_a_plain_disc_covers_its_area() -> None:
    layers = blank(2).mapped(torch.zeros_like)
    ones = torch.ones(2, LAYERS)
    opacity = torch.zeros(2, LAYERS)
    opacity[:, 3] = 1.0
    disc = Layers(
        **{field.name: getattr(layers, field.name) for field in fields(layers)}
        | {
            "opacity": opacity,
            "axes": 0.5 * torch.ones(2, LAYERS, 2),
            "exponent": 2 * ones,
            "colour": torch.ones(2, LAYERS, 3),
        }
    )
    share = rendered(disc, texture_bank(2, Draws.of(0, CPU))).mean()
    assert abs(float(share) - torch.pi / 16) < 0.002


def test_views_are_crops_of_the_right_size() -> None:
    scenes = images_of(4)
    draws = Draws.of(5, CPU)
    for make in (random_views, plain_views):
        views = make(scenes, draws)
        assert views.shape == (4, 3, VIEW_SIDE, VIEW_SIDE)
        assert float(views.min()) >= 0.0
        assert float(views.max()) <= 1.0
    assert torch.equal(
        random_views(scenes, Draws.of(6, CPU)), random_views(scenes, Draws.of(6, CPU))
    )
