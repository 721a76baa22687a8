"""The commands ``procedural``: the network, the rows, held-out accuracies, and the release."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from matrixdp import Budget
from matrixdp.cli.shared.commands import Commands

__all__ = ["procedural"]

procedural = Commands(
    help="CIFAR-10 with features from procedural images; the page is docs/procedural_images.md.",
    no_args_is_help=True,
)

RowsOption: TypeAlias = Annotated[Path, typer.Option("--rows", help="Folder of rows.")]
EpsilonOption: TypeAlias = Annotated[float, typer.Option("--epsilon", help="For all releases.")]
DeltaOption: TypeAlias = Annotated[float, typer.Option("--delta")]
StepsOption: TypeAlias = Annotated[int, typer.Option("--steps", help="Released gradients.")]
RateOption: TypeAlias = Annotated[float, typer.Option("--rate", help="Of the first step.")]
ClipOption: TypeAlias = Annotated[float, typer.Option("--clip", help="Of residual times row.")]


@procedural.command()
def pretrain(
    network: Annotated[str, typer.Option("--network", help="wide, p2 or tiny.")],
    steps: Annotated[int, typer.Option("--steps", help="In all pieces together.")],
    out: Annotated[Path, typer.Option("--out", help="File of weights; FILE.state between pieces.")],
    seed: Annotated[int, typer.Option("--seed", help="Of weights and scenes.")] = 0,
    seconds: Annotated[float, typer.Option("--seconds", help="Length of this piece.")] = 480.0,
    pairs: Annotated[int, typer.Option("--pairs", help="Scenes of a step.")] = 2048,
    textures: Annotated[int, typer.Option("--textures", help="In the bank.")] = 65_536,
) -> None:
    """Learn a network from scenes; the same command again continues."""
    from matrixdp_experiments.procedural import networks, pretraining, work  # noqa: PLC0415 (slow)

    plan = pretraining.Pretraining(
        networks.checked_network(network), seed, steps, pairs=pairs, textures=textures
    )
    _print(work.pretrain(plan, out, seconds=seconds, progress=_say))


@procedural.command()
def features(
    weights: Annotated[list[Path], typer.Option("--weights", help="Of each network.")],
    out: RowsOption,
    part: Annotated[list[str] | None, typer.Option("--part", help="train, test.")] = None,
    synthetic: Annotated[int, typer.Option("--synthetic", help="Images for statistics.")] = 16_384,
    seed: Annotated[int, typer.Option("--seed", help="Of those images.")] = 0,
) -> None:
    """Make the rows of CIFAR-10; MATRIXDP_DATA names its folder."""
    from matrixdp_experiments.procedural import work  # noqa: PLC0415 (slow)
    from matrixdp_experiments.procedural.features import FeatureSetting  # noqa: PLC0415
    from matrixdp_experiments.procedural.folders import RowFolder  # noqa: PLC0415

    setting = FeatureSetting(seed, images=synthetic, textures=synthetic)
    _print(work.make_rows(weights, part or ["train"], setting, RowFolder(out), _say))


@procedural.command()
def choose(
    rows: RowsOption,
    folds: Annotated[int, typer.Option("--folds", help="How many, of 5,000 images.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Of the simulated noise.")] = 0,
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = 1e-5,
    steps: StepsOption = 200,
    rate: RateOption = 14.0,
    clip: ClipOption = 0.2,
) -> None:
    """Show accuracies on held-out training images, with simulated noise: not paid for."""
    from matrixdp_experiments.procedural import work  # noqa: PLC0415 (slow)
    from matrixdp_experiments.procedural.account import Descent  # noqa: PLC0415
    from matrixdp_experiments.procedural.folders import RowFolder  # noqa: PLC0415

    descent = Descent(steps=steps, rate=rate, clip=clip)
    budget = Budget(epsilon, delta)
    _print(work.choose(RowFolder(rows), budget, descent, folds=range(folds), seed=seed))


@procedural.command()
def release(
    rows: RowsOption,
    out: Annotated[Path, typer.Option("--out", help="Where to write what is known, as JSON.")],
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = 1e-5,
    steps: StepsOption = 200,
    rate: RateOption = 14.0,
    clip: ClipOption = 0.2,
    measured: Annotated[bool, typer.Option(help="Measure neighbours on the way.")] = True,
    test: Annotated[bool, typer.Option("--test", help="Look at the test images: once.")] = False,
) -> None:
    """Release mean and gradients with exact noise."""
    from matrixdp_experiments.procedural import work  # noqa: PLC0415 (slow)
    from matrixdp_experiments.procedural.account import Descent  # noqa: PLC0415
    from matrixdp_experiments.procedural.folders import RowFolder  # noqa: PLC0415

    descent = Descent(steps=steps, rate=rate, clip=clip)
    found = work.release(
        RowFolder(rows), Budget(epsilon, delta), descent, measured=measured, test=test
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=2) + "\n")
    _print(found)


def _print(values: dict[str, Any]) -> None:
    typer.echo(json.dumps(values, indent=2, allow_nan=False))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
