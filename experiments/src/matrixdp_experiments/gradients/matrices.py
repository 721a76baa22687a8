"""The weight matrices of the models of Type I, as MVG sees them.

They are written down rather than read off the models, so that noise can be accounted for, and a
report made, where PyTorch is not installed. A test compares them with the models.
"""

from matrixdp.errors import InvalidParameterError

__all__ = ["VECTORS", "matrix_shapes"]

VECTORS = "vectors"
"""The name of the matrix that holds all parameters outside of weight matrices."""

_SHAPES: dict[str, dict[str, tuple[int, int]]] = {
    "mnist": {
        "body.0": (6, 26),
        "body.3": (16, 151),
        "head.0": (120, 401),
        "head.2": (84, 121),
        "head.4": (10, 85),
    },
    "adult": {"0": (12, 106), "2": (2, 13)},
    "cora": {"dense": (16, 1434), "convolution.linear": (7, 17)},
    "cifar10": {
        "body.0": (64, 28),
        "body.3": (64, 577),
        "body.7": (128, 577),
        "body.10": (128, 1153),
        "body.14": (256, 1153),
        "body.17": (256, 2305),
        "body.20": (256, 2305),
        "body.24": (512, 2305),
        **{f"body.{layer}": (512, 4609) for layer in (27, 30, 34, 37, 40)},
        "head.0": (512, 513),
        "head.2": (10, 513),
        VECTORS: (4224, 2),
    },
    "svhn": {
        "body.0": (64, 28),
        "body.3": (192, 577),
        "body.6": (384, 1729),
        "body.8": (256, 3457),
        "body.10": (256, 2305),
        "head.0": (4096, 1025),
        "head.2": (512, 4097),
        "head.4": (10, 513),
    },
    "digits": {"0": (8, 10), "4": (10, 73)},
}


def matrix_shapes(dataset: str) -> dict[str, tuple[int, int]]:
    """Return the shapes of a model's weight matrices by the names of their layers.

    A kernel is outputs times (inputs times positions), and a bias is one more column. The scales
    and shifts of all normalisation layers are the two columns of one matrix, ``vectors``.
    """
    if dataset not in _SHAPES:
        raise InvalidParameterError(
            f"dataset={dataset!r} has no model: use one of {', '.join(_SHAPES)}"
        )
    return dict(_SHAPES[dataset])
