"""The time of a private training step over that of a plain one, here and in Opacus.

Each row is one way to train a model on one device. "matrixdp" is what a user of `PrivateTraining`
gets by default: secret lots, drawn from eight times as many records, and exact noise, in a loop
over lots or by captured steps. "matrixdp, simulated noise" is the same for an experiment with a
seed, which protects nothing. "matrixdp, engine" forms and clips the gradients of a given batch.

A plain step takes a fixed batch, eagerly or captured as a CUDA graph. Times are those of steps that
follow each other. Memory is that of eager steps in a process of their own: ``first_gib`` is the
peak of the first, with what cuDNN takes to choose its algorithms, and ``peak_gib`` that of a later
one. Opacus 1.6 is measured if it is installed.
"""

import argparse
import contextlib
import csv
import gc
import math
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from saved import RESULTS, commit, processor
from torch import Tensor, nn
from torch.nn import functional
from training_settings import CPU_SETTINGS, GPU_SETTINGS, Setting

from matrixdp.training import PrivateTraining, TrainingPlan
from matrixdp.training.layers.tracing import Tracer
from matrixdp.training.lots.clipping import clipped_sum

CLIP_NORM = 1.0
Step = Callable[[], None]


@dataclass(frozen=True)
class Way:
    """A way to take steps: run eagerly, and captured as a CUDA graph where that can be done."""

    eager: Callable[[], Step]
    graph: Callable[[], Step] | None = None
    repetitions: int = 15
    warm_up: int = 12
    memory: bool = True  # whether it is measured, too


# Steps until lots have had every size.
_UNTIL_EVERY_SIZE = 60


_DATA = 8  # of so many times as many records lots are drawn


class Workbench:
    """A model, a batch and an optimiser on a device, and the steps that are compared."""

    def __init__(self, setting: Setting, device: str) -> None:
        torch.manual_seed(0)
        rows = setting.examples * setting.views
        self._setting = setting
        self._device = device
        if setting.words:
            self._inputs = torch.randint(setting.words, (rows, *setting.shape), device=device)
            self._targets = self._inputs[:, 1:].contiguous()
        else:
            self._inputs = torch.randn(rows, *setting.shape, device=device)
            self._targets = torch.randint(0, 10, (rows,), device=device)
        if setting.channels_last:
            self._inputs = self._inputs.to(memory_format=torch.channels_last)

    def plain(self) -> Step:
        """Return a step of ordinary training."""
        model, optimiser = self._made()

        def step() -> None:
            optimiser.zero_grad(set_to_none=True)
            with self._autocast():
                loss = functional.cross_entropy(model(self._inputs), self._targets)
            loss.backward()
            optimiser.step()

        return step

    def private(self) -> Step:
        """Return a private step of matrixdp."""
        model, optimiser = self._made()
        groups = dict.fromkeys(model.parameters(), 0)
        tracer = Tracer(model, groups)
        examples, views = self._setting.examples, self._setting.views

        def accumulate(inputs: Tensor, targets: Tensor) -> dict[nn.Parameter, Tensor]:
            rows = len(inputs)
            with tracer.on():
                with self._autocast():
                    losses = _losses_of(model(inputs), targets)
                by_example = losses.reshape(rows // views, views).mean(1)
                uses = tracer.uses(by_example, rows // views)
            with torch.no_grad():
                found = clipped_sum(uses, groups, [CLIP_NORM], half=self._setting.half)
            return dict(found.sums)

        def step() -> None:
            optimiser.zero_grad(set_to_none=True)
            sums = accumulate(self._inputs, self._targets)
            with torch.no_grad():
                totals = list(sums.values())
                sizes = [total.numel() for total in totals]
                # One draw for all parameters, as `PrivateTraining` has it.
                noise = torch.randn(sum(sizes), device=self._device).split_with_sizes(sizes)
                pairs = zip(noise, totals, strict=True)
                torch._foreach_add_(totals, [part.view(total.shape) for part, total in pairs])
                torch._foreach_div_(totals, examples)
                for parameter, total in zip(sums, totals, strict=True):
                    parameter.grad = total
            optimiser.step()

        return step

    def exact(self) -> Step:
        """Return a private step in the mode exact: every record by itself, simulated noise."""
        model, optimiser = self._made()
        losses = self._losses(model)
        training = PrivateTraining(model, losses, optimiser, self._plan(1), seed=0, mode="exact")
        return self._loop(training, (self._inputs, self._targets), 1)

    def loop(self, seed: int | None) -> Step:
        """Return a step of a loop over lots; with a seed the noise is simulated."""
        return self._loop(self._training(seed), self._data(), self._batch_size)

    def captured(self, seed: int | None) -> Step:
        """Return a captured step; with a seed the noise is simulated."""
        return self._training(seed).captured_step(self._data(), batch_size=self._batch_size)

    def _training(self, seed: int | None) -> PrivateTraining:
        model, optimiser = self._made()
        plan = self._plan(_DATA)
        return PrivateTraining(model, self._losses(model), optimiser, plan, seed=seed)

    def _losses(self, model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
        def losses(inputs: Tensor, targets: Tensor) -> Tensor:
            with self._autocast():
                return _losses_of(model(inputs), targets)

        return losses

    @property
    def _batch_size(self) -> int:
        """Enough for nearly every lot: four standard deviations above its expected size."""
        examples = self._setting.examples
        return examples + 32 * math.ceil(4 * math.sqrt(examples) / 32)

    def _data(self) -> tuple[Tensor, Tensor]:
        examples = self._setting.examples
        inputs = self._inputs[:examples].repeat(_DATA, *[1] * len(self._setting.shape))
        if self._setting.channels_last:
            inputs = inputs.to(memory_format=torch.channels_last)
        targets = self._targets[:examples]
        return inputs, targets.repeat(_DATA, *[1] * (targets.ndim - 1))

    def _plan(self, times: int) -> TrainingPlan:
        """Return a plan for the lot out of so many times as many records."""
        examples = self._setting.examples
        return TrainingPlan(
            records=times * examples,
            lot_size=examples,
            steps=10_000,
            clip_norm=CLIP_NORM,
            noise_multiplier=100.0,
            delta=1e-5,
            views=self._setting.views,
        )

    @staticmethod
    def _loop(training: PrivateTraining, data: tuple[Tensor, Tensor], size: int) -> Step:
        lots = training.lots(data)
        return lambda: training.step(next(lots), batch_size=size)

    def opacus(self, *, ghost: bool) -> Step:
        """Return a private step of Opacus, by hooks or by ghost clipping."""
        from opacus.grad_sample import GradSampleModule  # noqa: PLC0415
        from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import (  # noqa: PLC0415
            GradSampleModuleFastGradientClipping,
        )
        from opacus.optimizers import (  # noqa: PLC0415
            DPOptimizer,
            DPOptimizerFastGradientClipping,
        )
        from opacus.utils.fast_gradient_clipping_utils import (  # noqa: PLC0415
            DPLossFastGradientClipping,
        )

        model, optimiser = self._made()
        options = {
            "noise_multiplier": 1.0,
            "max_grad_norm": CLIP_NORM,
            "expected_batch_size": self._setting.examples,
        }
        if ghost:
            wrapped: nn.Module = GradSampleModuleFastGradientClipping(
                model, max_grad_norm=CLIP_NORM, use_ghost_clipping=True
            )
            private = DPOptimizerFastGradientClipping(optimiser, **options)
            criterion = DPLossFastGradientClipping(
                wrapped, private, nn.CrossEntropyLoss(reduction="mean"), loss_reduction="mean"
            )
        else:
            wrapped = GradSampleModule(model)
            private = DPOptimizer(optimiser, **options)
            criterion = nn.CrossEntropyLoss(reduction="mean")

        def step() -> None:
            private.zero_grad()
            made, targets, options = wrapped(self._inputs), self._targets, {}
            if ghost and targets.ndim > 1:  # as it takes sequences
                options = {"shape": targets.shape}
                made, targets = made.mT.flatten(0, 1), targets.flatten()
            loss = criterion(made, targets, **options)
            loss.backward()
            private.step()

        return step

    def _made(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = self._setting.model().to(self._device)
        if self._setting.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model, torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    @contextlib.contextmanager
    def _autocast(self) -> Iterator[None]:
        # Casts are not cached, since a captured graph would keep those of its first run.
        with torch.autocast(
            self._device, torch.bfloat16, enabled=self._setting.half, cache_enabled=False
        ):
            yield


def _losses_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return one loss for each row: the mean over its words."""
    losses = functional.cross_entropy(logits, targets, reduction="none")
    return losses if losses.ndim == 1 else losses.mean(1)


def captured(step: Step) -> Step:
    """Return a step as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def milliseconds(step: Step, repetitions: int, warm_up: int) -> float:
    """Return the time of a step among others on a GPU: the median of three runs of some steps."""
    for _ in range(warm_up):
        step()
    times = []
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repetitions):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / repetitions)
    return 1e3 * statistics.median(times)


def peak_gibibytes(step: Step, warm_up: int) -> float:
    """Return the most memory that a step held at once on the GPU."""
    for _ in range(warm_up):
        step()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**30


def own_gibibytes(setting: Setting, way: str) -> tuple[float, float]:
    """Return the peaks of a first step and of a later one, from a process of their own.

    There no algorithm was chosen before, and nothing is left of other settings.
    """
    command = [sys.executable, __file__, "--only", setting.name, "--memory", way]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    first, later = map(float, ended.stdout.split()[-2:])
    return first, later


def ways_to_train(setting: Setting, bench: Workbench) -> dict[str, Way]:
    """Return all ways to take a step of a setting, by name."""
    ways = {"plain": Way(bench.plain, lambda: captured(bench.plain()))}
    if not setting.loop:
        ways["matrixdp, engine"] = Way(bench.private, lambda: captured(bench.private()))
    if setting.training:
        ways |= {
            "matrixdp": Way(
                lambda: bench.loop(None),
                lambda: bench.captured(None),
                repetitions=40,
                warm_up=_UNTIL_EVERY_SIZE,
            ),
            "matrixdp, simulated noise": Way(
                lambda: bench.loop(0),
                lambda: bench.captured(0),
                repetitions=40,
                warm_up=_UNTIL_EVERY_SIZE,
                memory=False,
            ),
        }
    if setting.exact:
        ways["matrixdp, mode exact"] = Way(bench.exact, repetitions=1, warm_up=1)
    if setting.opacus and _has_opacus():
        ways["Opacus, hooks"] = Way(lambda: bench.opacus(ghost=False))
        ways["Opacus, ghost clipping"] = Way(lambda: bench.opacus(ghost=True))
    return {name: replace(way, graph=None) for name, way in ways.items()} if setting.loop else ways


def alternately(ways: Mapping[str, Way], setting: Setting) -> list[dict[str, object]]:
    """Return the median times of all ways on a CPU, whose speed changes while they run.

    They take their steps in turns, so that a slower minute is one for all of them.
    """
    steps: dict[str, Step] = {}
    refused: dict[str, str] = {}
    for name, way in ways.items():
        try:
            step = way.eager()
            step()
        except Exception as error:
            if not name.startswith("Opacus"):
                raise
            refused[name] = _refusal(error)
        else:
            steps[name] = step
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(3 + max(way.repetitions for way in ways.values())):
        for name, step in steps.items():
            if turn < 3 + ways[name].repetitions:
                start = time.perf_counter()
                step()
                times[name].append(time.perf_counter() - start)
    return [
        {
            "setting": setting.name,
            "way": name,
            "eager_ms": round(1e3 * statistics.median(taken[3:]), 3),
        }
        for name, taken in times.items()
    ] + [{"setting": setting.name, "way": name, "eager_ms": why} for name, why in refused.items()]


def figures(setting: Setting, name: str, way: Way) -> dict[str, object]:
    """Return time and memory of one way on a GPU."""
    row: dict[str, object] = {"setting": setting.name, "way": name}
    try:
        row["eager_ms"] = round(milliseconds(way.eager(), way.repetitions, way.warm_up), 3)
        if way.memory:
            first, later = own_gibibytes(setting, name)
            row |= {"first_gib": round(first, 3), "peak_gib": round(later, 3)}
        if way.graph is not None:
            row["graph_ms"] = round(milliseconds(way.graph(), way.repetitions, way.warm_up), 3)
    except torch.cuda.OutOfMemoryError:
        row["eager_ms"] = "out of memory"
    except Exception as error:
        if not name.startswith("Opacus"):
            raise
        row["eager_ms"] = _refusal(error)
    return row


def _refusal(error: Exception) -> str:
    """Return why Opacus does not take a model, which is a figure as well."""
    return f"refused: {type(error).__name__}"


def measured(setting: Setting, device: str) -> list[dict[str, object]]:
    """Return a row for every way to take a step of a setting."""
    ways = ways_to_train(setting, Workbench(setting, device))
    rows = [] if device == "cuda" else alternately(ways, setting)
    for name, way in ways.items() if device == "cuda" else ():
        rows.append(figures(setting, name, way))
        gc.collect()  # Opacus holds its modules in circles
        torch.cuda.empty_cache()
    for row in rows:
        print("  ".join(f"{column}={value}" for column, value in row.items()), flush=True)
    return rows


def _has_opacus() -> bool:
    try:
        import opacus  # noqa: F401, PLC0415
    except ImportError:
        return False
    return True


COLUMNS = ("setting", "way", "eager_ms", "graph_ms", "first_gib", "peak_gib")


def save(rows: list[dict[str, object]], kind: str, facts: Mapping[str, str]) -> None:
    """Write ``results/training_speed_<kind>.csv``, with what the figures were made on."""
    with (RESULTS / f"training_speed_{kind}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([row.get(column, "") for column in COLUMNS] for row in rows)
        writer.writerows([name, fact] for name, fact in facts.items())


def main() -> None:
    """Measure every setting of the device at hand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a setting's name")
    parser.add_argument("--memory", default="", help="print only the memory of this way")
    parser.add_argument("--save", action="store_true", help="keep the figures in results/")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    settings = GPU_SETTINGS if device == "cuda" else CPU_SETTINGS
    if arguments.memory:
        (setting,) = (one for one in settings if one.name == arguments.only)
        way = ways_to_train(setting, Workbench(setting, device))[arguments.memory]
        step = way.eager()
        print(peak_gibibytes(step, 0), peak_gibibytes(step, way.warm_up))
        return
    print(f"torch {torch.__version__} on {name}, {torch.get_num_threads()} CPU threads")
    device_name = name if device == "cuda" else processor()
    facts = {"commit": commit(), "device": device_name, "torch": torch.__version__}
    rows: list[dict[str, object]] = []
    for setting in settings:
        if arguments.only in setting.name:
            rows += measured(setting, device)
            # After each setting: a run that is cut short keeps what it has measured.
            if arguments.save:
                save(rows, "gpu" if device == "cuda" else "cpu", facts)


if __name__ == "__main__":
    main()
