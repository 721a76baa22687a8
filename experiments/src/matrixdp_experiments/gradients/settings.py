"""The constants of every data set: lot, epochs, and the hyper-parameters that may be chosen.

Lots, epochs and numbers of records are those of the paper. Everything here is public and was fixed
before any run.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from matrixdp.rounding import float_up
from matrixdp_experiments.grid.runs import Split
from matrixdp_experiments.options import check_known

__all__ = [
    "EPSILONS",
    "MOMENTUM",
    "PAPER_DATASETS",
    "REFERENCE_EPSILON",
    "SETTINGS",
    "WEIGHT_DECAY",
    "Setting",
    "setting_of",
]

EPSILONS = (0.01, 0.1, 0.5, 1.0)
# Hyper-parameters are chosen at this epsilon, and used at all of them.
REFERENCE_EPSILON = 1.0
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # of training without noise; noise is regularisation enough

_CLIP_NORMS = (0.1, 1.0)
_PLAIN_RATES = (0.01, 0.03, 0.1, 0.3)


def _candidates(*products: float) -> tuple[tuple[float, float], ...]:
    """Return learning rates and clip norms with these products.

    With most gradients clipped, a step depends on the product of the two. So the candidates are
    three products, each with two clip norms.
    """
    # Rounded, so that 0.02 over 0.1 is the 0.2 that a reader expects.
    return tuple((round(product / clip, 9), clip) for clip in _CLIP_NORMS for product in products)


# Wide layers have small weights, which the same noise would swamp: their models start lower.
_NARROW, _WIDE = _candidates(0.02, 0.06, 0.2), _candidates(0.006, 0.02, 0.06)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a data set is trained on.

    Attributes
    ----------
    name, title, model : str
        Of the data set, for the command line and for the page, and of the network.
    records, choosing_records : int
        How many records a final run and a run that chooses hyper-parameters train on.
    lot_size, epochs : int
        The expected number of records in a step, and how often each record is expected.
    commonest_class : float
        The share of the most frequent class among the tested records: the accuracy of a model that
        always answers with it, and so has learned nothing else.
    seeds : tuple of int
        Of the runs that are made unless others are asked for.
    candidates : tuple of (float, float)
        Learning rates and clip norms that private training may choose from.
    plain_rates : tuple of float
        Learning rates that training without noise may choose from.
    augmented : bool
        Whether training without noise flips and shifts its images.
    half : True or None
        Whether convolutions and products are in bfloat16, with channels last: for large models.
    with_matrix_mechanism : bool
        Whether the paper compares with the Matrix Mechanism.
    """

    name: str
    title: str
    model: str
    records: int
    choosing_records: int
    lot_size: int
    epochs: int
    commonest_class: float
    seeds: tuple[int, ...] = (0, 1, 2)
    candidates: tuple[tuple[float, float], ...] = _NARROW
    plain_rates: tuple[float, ...] = _PLAIN_RATES
    augmented: bool = False
    half: Literal[True] | None = None
    with_matrix_mechanism: bool = False

    @property
    def batch_size(self) -> int:
        """How many records are run at once: a lot exceeds it about once in 30,000 steps.

        It limits memory and does not change the result.
        """
        # The size of a lot has a standard deviation of at most the root of its mean.
        return self.lot_size + math.ceil(4.0 * math.sqrt(self.lot_size))

    @property
    def mvg_candidates(self) -> tuple[tuple[float, float], ...]:
        """The middle product with each clip norm: under MVG's noise there is little to choose."""
        return self.candidates[1::3]

    def records_of(self, split: Split) -> int:
        """Return how many records a run trains on."""
        return self.records if split == "test" else self.choosing_records

    def steps_of(self, split: Split) -> int:
        """Return the number of steps: as many as it takes to expect every record `epochs` times."""
        return round(Fraction(self.epochs * self.records_of(split), self.lot_size))

    def rate_of(self, split: Split) -> float:
        """Return the probability of a record to be in a lot, rounded up as it is accounted for."""
        return float_up(Fraction(self.lot_size, self.records_of(split)))


# In the order in which they are run.
SETTINGS: dict[str, Setting] = {
    one.name: one
    for one in (
        Setting(
            name="mnist",
            title="MNIST",
            model="LeNet",
            records=55_000,
            choosing_records=55_000,
            lot_size=1024,
            epochs=100,
            commonest_class=0.1135,
        ),
        Setting(
            name="adult",
            title="Adult",
            model="MLP",
            records=32_561,
            choosing_records=29_561,
            lot_size=512,
            epochs=50,
            commonest_class=0.7638,
            with_matrix_mechanism=True,
        ),
        Setting(
            name="cora",
            title="Cora",
            model="GCN-Mixed",
            records=1140,
            choosing_records=1140,
            lot_size=200,
            epochs=50,
            commonest_class=0.319,
            with_matrix_mechanism=True,
        ),
        Setting(
            name="cifar10",
            title="CIFAR-10",
            model="VGG-16",
            records=50_000,
            choosing_records=45_000,
            lot_size=1024,
            epochs=30,
            commonest_class=0.1,
            seeds=(0,),
            candidates=_WIDE,
            augmented=True,
            half=True,
        ),
        Setting(
            name="svhn",
            title="SVHN",
            model="AlexNet",
            records=73_257,
            choosing_records=68_257,
            lot_size=1024,
            epochs=60,
            commonest_class=0.1959,
            seeds=(0,),
            candidates=_WIDE,
        ),
        # A toy that comes with scikit-learn: the whole path in seconds, and no data to fetch.
        Setting(
            name="digits",
            title="digits",
            model="small CNN",
            records=1497,
            choosing_records=1197,
            lot_size=300,
            epochs=6,
            commonest_class=0.11,
            seeds=(0, 1),
            candidates=((0.5, 1.0), (2.0, 0.5)),
            plain_rates=(0.2, 0.5),
            with_matrix_mechanism=True,
        ),
    )
}
PAPER_DATASETS = tuple(name for name in SETTINGS if name != "digits")


def setting_of(dataset: str) -> Setting:
    """Return the setting of a data set, or raise with the names there are."""
    check_known(dataset, SETTINGS, "dataset")
    return SETTINGS[dataset]
