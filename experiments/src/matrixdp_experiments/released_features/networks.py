"""The networks that compute features: trained on public records, or random; kept in files.

A network is trained once for a data set and a seed. All heads of that seed then see the same
features, also when they are trained by other processes or later.
"""

import io
import pickle
from functools import lru_cache
from pathlib import Path

import torch
from torch import optim

from matrixdp.errors import FileFormatError
from matrixdp.files.publishing.atomic import write_all
from matrixdp_experiments.grid.runs import Run, run_key
from matrixdp_experiments.grid.shuffled_training import train_shuffled
from matrixdp_experiments.grid.tasks import RecordsTask, this_device
from matrixdp_experiments.models import FeatureNetwork
from matrixdp_experiments.released_features.cells import Network, network_run
from matrixdp_experiments.released_features.parts import Part, Parts, load_parts, new_network
from matrixdp_experiments.released_features.settings import feature_setting_of
from matrixdp_experiments.released_features.streams import stream_seed

__all__ = ["feature_parts", "seeded_network", "train_network", "weights_path"]

_AT_ONCE = 2048  # records; it limits memory and changes nothing


def weights_path(folder: Path, run: Run) -> Path:
    """Return where the weights of a trained network are kept, or will be."""
    return folder / "networks" / "weights" / f"{run.dataset}-{run_key(run)}.pt"


def train_network(folder: Path, run: Run) -> float:
    """Train a whole network on the public part and keep it; return its accuracy on the test part.

    That is what can be had without any private record.
    """
    device = this_device()
    network = seeded_network(run.dataset, stream_seed("network", run.seed)).to(device)
    parts = load_parts(run.dataset)
    task = RecordsTask(network, parts.public.to(device), parts.test.to(device))
    optimizer = optim.Adam(network.parameters(), lr=run.learning_rate)
    train_shuffled(
        task,
        optimizer,
        seed=stream_seed("public lots", run.seed),
        lot_size=run.lot_size,
        steps=run.steps,
        augmented=run.augmented,
    )
    content = io.BytesIO()
    torch.save({name: part.cpu() for name, part in network.state_dict().items()}, content)
    path = weights_path(folder, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_all([(path, content.getvalue())], force=True)
    feature_parts.cache_clear()  # which may hold what other weights computed
    return task.accuracy()


# One at a time: the features of all records may take a gigabyte.
@lru_cache(maxsize=1)
def feature_parts(folder: Path, dataset: str, network: Network, seed: int) -> Parts:
    """Return the features of all parts of a data set, by the network of a seed.

    Raises
    ------
    FileFormatError
        If the network was to be trained, and its file is not there or is damaged.
    """
    device = this_device()
    body = _network(folder, dataset, network, seed).to(device).body.eval()

    def features(part: Part) -> Part:
        with torch.no_grad():
            rows = [body(some.to(device)) for some in part.inputs.split(_AT_ONCE)]
        return Part(torch.cat(rows), part.targets.to(device))

    return Parts(*map(features, load_parts(dataset)))


def _network(folder: Path, dataset: str, network: Network, seed: int) -> FeatureNetwork:
    made = seeded_network(dataset, stream_seed("network", seed))
    if network == "public":
        path = weights_path(folder, network_run(feature_setting_of(dataset), seed))
        if not path.exists():
            raise FileFormatError(f"{path} is missing: `run type-two` makes it")
        try:
            made.load_state_dict(torch.load(path, weights_only=True))
        # Whichever of these it is, depends on where the file is damaged.
        except (pickle.UnpicklingError, EOFError, RuntimeError, TypeError) as error:
            raise FileFormatError(
                f"{path} does not hold the weights of this network: put the file back that "
                "`run type-two` wrote"
            ) from error
    return made


def seeded_network(dataset: str, seed: int) -> FeatureNetwork:
    """Return a network with the first weights of a seed, drawn on the CPU."""
    torch.manual_seed(seed)
    return new_network(dataset)
