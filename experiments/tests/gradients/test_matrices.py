"""The weight matrices that are written down are those of the models."""

from math import prod

import pytest
import torch

from matrixdp.errors import InvalidParameterError
from matrixdp_experiments.gradients.accounts import VECTORS, matrix_shapes
from matrixdp_experiments.gradients.settings import SETTINGS
from matrixdp_experiments.grid.tasks import _model_for


@pytest.mark.parametrize("dataset", SETTINGS)
def test_matrices_of_the_models(dataset: str) -> None:
    with torch.device("meta"):  # shapes without weights
        model = _model_for(dataset)
    found, vectors, pairs = {}, 0, 0
    for name, layer in model.named_modules():
        own = dict(layer.named_parameters(recurse=False))
        if "weight" in own and own["weight"].ndim > 1:
            weight = own["weight"]
            found[name] = (len(weight), prod(weight.shape[1:]) + ("bias" in own))
        elif own:
            # A scale and a shift for each channel; anything else would have no matrix.
            assert own.keys() == {"weight", "bias"}
            vectors, pairs = vectors + len(own["weight"]), pairs + 1
    if pairs:
        found[VECTORS] = (vectors, 2)
    assert matrix_shapes(dataset) == found
    # Every parameter is in one of them.
    assert sum(map(prod, found.values())) == sum(part.numel() for part in model.parameters())


def test_a_data_set_without_a_model() -> None:
    with pytest.raises(InvalidParameterError, match="dataset='imdb' has no model"):
        matrix_shapes("imdb")
