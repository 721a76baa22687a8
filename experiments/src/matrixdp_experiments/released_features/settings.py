"""The constants of every data set whose features are released.

Batches, epochs and numbers of training records are those of the paper. Everything here is public
and was fixed before the runs that are reported.
"""

from dataclasses import dataclass

from matrixdp_experiments.options import check_known

__all__ = [
    "EPSILONS",
    "FEATURE_SETTINGS",
    "HEAD_RATE",
    "PAPER_DATASETS",
    "PUBLIC_EVERY",
    "FeatureSetting",
    "feature_setting_of",
]

EPSILONS = {"exact": (0.1, 1.0, 5.0, 10.0), "paper": (0.01, 0.1, 0.5, 1.0)}
"""The claims that are compared under each protocol."""

PUBLIC_EVERY = 10
"""The first training record and every tenth after it are public; the others are private."""

HEAD_RATE = 1e-3
"""The learning rate of Adam for every head that is trained by steps: one for all cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSetting:
    """How the features of a data set are computed, released and trained on.

    Attributes
    ----------
    name, title, model : str
        Of the data set, for the command line and for the page, and of the network.
    records : int
        How many training records there are, public and private ones together.
    features, classes : int
        How many numbers are released for each record, and how many classes there are.
    batch_size, epochs : int
        Of the training of the head; MVG releases blocks of that many rows.
    public_batch_size, public_epochs : int
        Of the training of the whole network on the public part.
    public_rate : float
        The learning rate of Adam in that training.
    augmented : bool
        Whether that training flips and shifts its images.
    commonest_class : float
        The share of the most frequent class among the tested records.
    seeds : tuple of int
        Of the runs that are made unless others are asked for.
    """

    name: str
    title: str
    model: str
    records: int
    features: int
    classes: int = 10
    batch_size: int
    epochs: int
    public_batch_size: int = 64
    public_epochs: int
    public_rate: float
    augmented: bool = False
    commonest_class: float
    seeds: tuple[int, ...] = (0, 1, 2)

    @property
    def public_records(self) -> int:
        """How many training records are public."""
        return -(-self.records // PUBLIC_EVERY)

    @property
    def private_records(self) -> int:
        """How many rows are released."""
        return self.records - self.public_records

    @property
    def steps(self) -> int:
        """How many steps the training of the head takes."""
        return self.epochs * self.private_records // self.batch_size

    @property
    def public_steps(self) -> int:
        """How many steps the training on the public part takes."""
        return self.public_epochs * self.public_records // self.public_batch_size


# In the order of the paper's figure.
FEATURE_SETTINGS: dict[str, FeatureSetting] = {
    one.name: one
    for one in (
        FeatureSetting(
            name="mnist",
            title="MNIST",
            model="LeNet",
            records=55_000,
            features=400,
            batch_size=256,
            epochs=50,
            public_epochs=20,
            public_rate=1e-3,
            commonest_class=0.1135,
        ),
        FeatureSetting(
            name="cifar10",
            title="CIFAR-10",
            model="VGG-16",
            records=50_000,
            features=512,
            batch_size=256,
            epochs=50,
            public_epochs=100,
            public_rate=3e-4,
            augmented=True,
            commonest_class=0.1,
        ),
        FeatureSetting(
            name="svhn",
            title="SVHN",
            model="AlexNet",
            records=73_257,
            features=1024,
            batch_size=1024,
            epochs=20,
            public_epochs=40,
            public_rate=3e-4,
            commonest_class=0.1959,
        ),
        FeatureSetting(
            name="imdb",
            title="IMDB",
            model="BiLSTM",
            records=25_000,
            features=150,
            classes=2,
            batch_size=256,
            epochs=10,
            public_epochs=15,
            public_rate=2e-3,
            commonest_class=0.5,
        ),
        # A toy that comes with scikit-learn: the whole path in seconds, and no data to fetch.
        FeatureSetting(
            name="digits",
            title="digits",
            model="small CNN",
            records=1497,
            features=72,
            batch_size=128,
            epochs=30,
            public_batch_size=32,
            public_epochs=20,
            public_rate=1e-2,
            commonest_class=0.11,
            seeds=(0, 1),
        ),
    )
}
PAPER_DATASETS = tuple(name for name in FEATURE_SETTINGS if name != "digits")


def feature_setting_of(dataset: str) -> FeatureSetting:
    """Return the setting of a data set, or raise with the names there are."""
    check_known(dataset, FEATURE_SETTINGS, "dataset")
    return FEATURE_SETTINGS[dataset]
