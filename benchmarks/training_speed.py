"""How much longer a private training step takes than a plain one, here and in Opacus.

Each row is one model on one device. A step is forward, backward, simulated noise and an SGD update
on a fixed batch. Both sides run eagerly, or both are captured as CUDA graphs. Memory is the peak of
a step after warm-up, eager. Opacus 1.6 is measured if it is installed.
"""

import argparse
import contextlib
import csv
import gc
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from recorded import RESULTS, commit, processor
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.training import PrivateTraining, TrainingPlan
from matrixdp.training.clipping import clipped_sum
from matrixdp.training.recording import Recording

CLIP_NORM = 1.0
Step = Callable[[], None]


@dataclass(frozen=True)
class Setting:
    """A row of the table."""

    name: str
    model: Callable[[], nn.Module]
    image: tuple[int, int, int]
    examples: int
    views: int = 1
    half: bool = False
    channels_last: bool = False
    opacus: bool = True
    batches: int = 1  # into how many micro-batches a private step divides the lot
    exact: bool = False  # whether the mode exact is measured, too


class Residual(nn.Module):
    """A block of a wide residual network, with GroupNorm before each convolution."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.GroupNorm(16, before), nn.GroupNorm(16, width)
        self.first = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        same = before == width and stride == 1
        self.shortcut = None if same else nn.Conv2d(before, width, 1, stride=stride, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the block's output."""
        start = functional.relu(self.first_norm(inputs))
        rest = inputs if self.shortcut is None else self.shortcut(start)
        return rest + self.second(functional.relu(self.second_norm(self.first(start))))


def wide_resnet() -> nn.Module:
    """Return WRN-16-4 for images of 32 x 32."""
    blocks: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False)]
    before = 16
    for width, stride in ((64, 1), (128, 2), (256, 2)):
        blocks += [Residual(before, width, stride), Residual(width, width, 1)]
        before = width
    head = [nn.GroupNorm(16, 256), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*blocks, *head, nn.Linear(256, 10))


def vgg(*, normalised: bool) -> nn.Module:
    """Return VGG-16 (configuration D) for images of 32 x 32."""
    layers: list[nn.Module] = []
    before = 3
    for widths in ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3):
        for width in widths:
            layers.append(nn.Conv2d(before, width, 3, padding=1))
            layers += [nn.GroupNorm(32, width)] if normalised else []
            layers.append(nn.ReLU())
            before = width
        layers.append(nn.MaxPool2d(2))
    head = [nn.Flatten(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers, *head)


def lenet() -> nn.Module:
    """Return LeNet for images of 28 x 28."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)),
    )


COLOUR = (3, 32, 32)
GPU_SETTINGS = (
    Setting("VGG-16, lot 1,024, TF32", lambda: vgg(normalised=False), COLOUR, 1024),
    Setting(
        "VGG-16, lot 1,024, TF32, two micro-batches",
        *(lambda: vgg(normalised=False), COLOUR, 1024),
        opacus=False,
        batches=2,
    ),
    Setting("VGG-16 with GroupNorm, TF32", lambda: vgg(normalised=True), COLOUR, 1024),
    Setting(
        "VGG-16, bf16, channels last",
        lambda: vgg(normalised=False),
        *(COLOUR, 1024),
        half=True,
        channels_last=True,
        opacus=False,
    ),
    Setting(
        "VGG-16 with GroupNorm, bf16, channels last",
        lambda: vgg(normalised=True),
        *(COLOUR, 1024),
        half=True,
        channels_last=True,
        opacus=False,
    ),
    Setting(
        "WRN-16-4, 16 views of 64 images, bf16",
        wide_resnet,
        *(COLOUR, 64, 16),
        half=True,
        channels_last=True,
        opacus=False,
    ),
    Setting("LeNet, lot 1,024", lenet, (1, 28, 28), 1024, exact=True),
)
CPU_SETTINGS = (Setting("LeNet, lot 256, CPU", lenet, (1, 28, 28), 256, exact=True),)


class Workbench:
    """A model, a batch and an optimiser on a device, and the steps that are compared."""

    def __init__(self, setting: Setting, device: str) -> None:
        torch.manual_seed(0)
        rows = setting.examples * setting.views
        self._setting = setting
        self._device = device
        self._inputs = torch.randn(rows, *setting.image, device=device)
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
        recording = Recording(model)
        groups = dict.fromkeys(model.parameters(), 0)
        examples, views = self._setting.examples, self._setting.views

        def accumulate(inputs: Tensor, targets: Tensor) -> dict[nn.Parameter, Tensor]:
            rows = len(inputs)
            with recording.on():
                with self._autocast():
                    losses = functional.cross_entropy(model(inputs), targets, reduction="none")
                by_example = losses.reshape(rows // views, views).mean(1)
                uses = recording.backward(by_example, rows, rows // views)
            with torch.no_grad():
                found = clipped_sum(uses, groups, [CLIP_NORM], half=self._setting.half)
            return dict(found.sums)

        def step() -> None:
            optimiser.zero_grad(set_to_none=True)
            parts = (part.chunk(self._setting.batches) for part in (self._inputs, self._targets))
            sums: dict[nn.Parameter, Tensor] = {}
            for inputs, targets in zip(*parts, strict=True):
                for parameter, total in accumulate(inputs, targets).items():
                    sums[parameter] = sums[parameter] + total if parameter in sums else total
            with torch.no_grad():
                totals = list(sums.values())
                torch._foreach_add_(totals, [torch.randn_like(total) for total in totals])
                torch._foreach_div_(totals, examples)
                for parameter, total in zip(sums, totals, strict=True):
                    parameter.grad = total
            optimiser.step()

        return step

    def exact(self) -> Step:
        """Return a private step in the mode exact: every record by itself, simulated noise."""
        model, optimiser = self._made()
        records = self._setting.examples
        plan = TrainingPlan(
            records=records,
            lot_size=records,
            steps=10_000,
            clip_norm=CLIP_NORM,
            noise_multiplier=100.0,
            delta=1e-5,
        )
        training = PrivateTraining(model, optimiser, plan, seed=0, mode="exact")
        lots = training.lots((self._inputs, self._targets))

        def step() -> None:
            for inputs, targets in next(lots).batches(1):
                losses = functional.cross_entropy(model(inputs), targets, reduction="none")
                training.accumulate(losses)
            training.step()

        return step

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
            loss = criterion(wrapped(self._inputs), self._targets)
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


def milliseconds(step: Step, device: str, repetitions: int) -> float:
    """Return the median time of a step."""
    for _ in range(3):
        step()
    times = []
    for _ in range(repetitions):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def peak_gibibytes(step: Step) -> float:
    """Return the most memory that a step held at once on the GPU."""
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**30


def measured(setting: Setting, device: str) -> list[dict[str, object]]:
    """Return a row for every way to take a step of a setting."""
    bench = Workbench(setting, device)
    ways: dict[str, Callable[[], Step]] = {"plain": bench.plain, "matrixdp": bench.private}
    if setting.exact:
        ways["matrixdp, mode exact"] = bench.exact
    if setting.opacus and _has_opacus():
        ways["Opacus, hooks"] = lambda: bench.opacus(ghost=False)
        ways["Opacus, ghost clipping"] = lambda: bench.opacus(ghost=True)
    rows: list[dict[str, object]] = []
    for way, make in ways.items():
        row: dict[str, object] = {"setting": setting.name, "way": way}
        step = make()
        try:
            repetitions = 3 if way == "matrixdp, mode exact" else 15
            row["eager_ms"] = round(milliseconds(step, device, repetitions), 3)
            if device == "cuda":
                row["peak_gib"] = round(peak_gibibytes(step), 3)
                if way in ("plain", "matrixdp"):
                    row["graph_ms"] = round(milliseconds(captured(make()), device, 30), 3)
        except torch.cuda.OutOfMemoryError:
            row["eager_ms"] = "out of memory"
        rows.append(row)
        print("  ".join(f"{name}={value}" for name, value in row.items()), flush=True)
        del step
        gc.collect()  # Opacus holds its modules in circles
        if device == "cuda":
            torch.cuda.empty_cache()
    return rows


def _has_opacus() -> bool:
    try:
        import opacus  # noqa: F401, PLC0415
    except ImportError:
        return False
    return True


COLUMNS = ("setting", "way", "eager_ms", "graph_ms", "peak_gib")


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
    parser.add_argument("--save", action="store_true", help="keep the figures in results/")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"torch {torch.__version__} on {name}, {torch.get_num_threads()} CPU threads")
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    rows: list[dict[str, object]] = []
    for setting in GPU_SETTINGS if device == "cuda" else CPU_SETTINGS:
        if arguments.only in setting.name:
            rows += measured(setting, device)
    if arguments.save:
        device_name = name if device == "cuda" else processor()
        facts = {"commit": commit(), "device": device_name, "torch": torch.__version__}
        save(rows, "gpu" if device == "cuda" else "cpu", facts)


if __name__ == "__main__":
    main()
