"""The feature map: blocks of the right size, the same for mirror images, each row by itself."""

from pathlib import Path

import pytest
import torch

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp_experiments.procedural.features import measured_alone
from matrixdp_experiments.procedural.folders import RowFolder
from matrixdp_experiments.procedural.measuring import Measuring, cell_means, deviations
from matrixdp_experiments.procedural.neighbours import crafted_images
from matrixdp_experiments.procedural.networks import Body, checked_network
from matrixdp_experiments.procedural.whitening import BLOCK_BOUND, BlockWhitening, measured_integers

CPU = torch.device("cpu")


def measuring(networks: int = 1) -> Measuring:
    torch.manual_seed(0)
    return Measuring([Body("tiny").eval() for _ in range(networks)])


def some_images(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(256, (count, 3, 32, 32), generator=generator).to(torch.uint8)


def test_blocks_have_the_columns_of_their_kind() -> None:
    found = measuring(2)(some_images(1)[0])
    columns = {(block.network, block.level, block.kind): block.columns for block in found}
    assert len(columns) == 2 * 3 * 5
    for network in (0, 1):
        for level, channels in enumerate((16, 16, 32)):
            assert columns[network, level, "mean-1"] == channels
            assert columns[network, level, "mean-2"] == 2 * channels
            assert columns[network, level, "mean-4"] == 8 * channels
            assert columns[network, level, "deviation-2"] == 2 * channels
            assert columns[network, level, "enlarged-2"] == 2 * channels
    assert all(len(row) == block.columns for block, row in found.items())


def test_a_mirror_image_has_the_same_blocks() -> None:
    image = some_images(1)[0]
    ours, mirrored = measuring()(image), measuring()(image.flip(-1))
    for block, row in ours.items():
        assert torch.allclose(row, mirrored[block], atol=1e-4)


def test_deviations_are_those_within_cells() -> None:
    maps = torch.randn(2, 3, 8, 8)
    found = deviations(maps, cell_means(maps, 2))
    cell = maps[1, 2, :4, 4:]
    assert float(found[1, 2, 0, 1]) == pytest.approx(float(cell.std(correction=0)), rel=1e-4)


def test_a_row_does_not_depend_on_the_others() -> None:
    images, row = some_images(4), measuring().row
    whole = measured_alone(row, images, CPU)
    assert torch.equal(measured_alone(row, images[1:], CPU), whole[1:])
    assert torch.equal(measured_alone(row, images.flip(0), CPU), whole.flip(0))


def test_whitened_rows_are_exact_and_do_not_depend_on_the_others() -> None:
    generator = torch.Generator().manual_seed(2)
    rows = measured_integers(torch.randn(300, 40, generator=generator).abs())
    whitening = BlockWhitening.of(rows)
    found = whitening(rows)
    for start in (1, 7, 64):
        assert torch.equal(whitening(rows[start:]), found[start:])
    product = (rows[:3].double() - whitening.centre) @ whitening.directions
    whole = (rows[:3].double() - whitening.centre).to(torch.int64).numpy().astype(object)
    directions = whitening.directions.to(torch.int64).numpy().astype(object)
    assert product.to(torch.int64).tolist() == (whole @ directions).tolist()
    for row in found.to(torch.int64).tolist():
        assert 0.99 * BLOCK_BOUND**2 < sum(value**2 for value in row) <= BLOCK_BOUND**2


def test_whitening_makes_directions_equal() -> None:
    generator = torch.Generator().manual_seed(3)
    rows = measured_integers(torch.randn(4000, 6, generator=generator) * torch.arange(1, 7) * 0.2)
    whitening = BlockWhitening.of(rows)
    white = (rows.double() - whitening.centre) @ whitening.directions
    spread = white.std(dim=0)
    assert float(spread.max() / spread.min()) < 1.02


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf, 1e30, 0.0])
def test_whatever_is_measured_becomes_a_bounded_row(value: float) -> None:
    whitening = BlockWhitening.of(measured_integers(torch.rand(50, 8)))
    row = whitening(measured_integers(torch.full((1, 8), value)))[0].to(torch.int64)
    assert sum(int(entry) ** 2 for entry in row) <= BLOCK_BOUND**2


def test_crafted_images_are_images() -> None:
    images = crafted_images()
    assert images.shape == (11, 3, 32, 32)
    assert images.dtype == torch.uint8
    assert {int(images.min()), int(images.max())} == {0, 255}
    assert len(images.flatten(1).unique(dim=0)) == 11


def test_an_unknown_network_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="network='huge'"):
        checked_network("huge")


def test_a_folder_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="record features"):
        RowFolder(tmp_path).read("train")
