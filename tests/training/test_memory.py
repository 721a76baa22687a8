"""Memory: large tensors are let go as soon as they are no longer needed."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="private training needs the extra `train`")

from torch import Tensor, nn  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from matrixdp.training.layers import shifted_gram  # noqa: E402
from matrixdp.training.layers.convolution import ConvolutionUse  # noqa: E402
from matrixdp.training.layers.embedding import EmbeddingUse  # noqa: E402
from matrixdp.training.layers.gram import gram  # noqa: E402
from matrixdp.training.layers.linear import LinearUse  # noqa: E402
from matrixdp.training.layers.tracing import Tracer  # noqa: E402
from matrixdp.training.layers.use import KeptGradients, LayerUse, MeasuredUse  # noqa: E402
from matrixdp.training.lots.clipping import clipped_sum  # noqa: E402


def storage(tensor: Tensor) -> Any:
    return StorageWeakRef(tensor.untyped_storage())


def test_gram_matrices_of_one_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def watched(rows: Tensor) -> Tensor:
        # The pair of this part at most.
        assert sum(not one.expired() for one in made) <= 1
        result = gram(rows)
        made.append(storage(result))
        return result

    monkeypatch.setattr(shifted_gram, "gram", watched)
    monkeypatch.setattr(shifted_gram, "_MOST_GRAM_BYTES", 1)
    layer = nn.Conv2d(24, 32, 3, padding=1)
    use = ConvolutionUse(layer, torch.randn(5, 24, 4, 4), torch.randn(5, 32, 4, 4), 5)
    use.norm_bounds()
    assert len(made) == 10


def convolution(inputs: Tensor, outputs: Tensor) -> LayerUse:
    images, made = inputs.unflatten(2, (4, 4)), outputs.unflatten(2, (4, 4))
    return ConvolutionUse(nn.Conv2d(24, 24, 3, padding=1), images, made, 5)


def linear(inputs: Tensor, outputs: Tensor) -> LayerUse:
    weight, bias = nn.Parameter(torch.randn(16, 16)), nn.Parameter(torch.randn(16))
    return LinearUse(weight, bias, inputs, outputs)


def kept(inputs: Tensor, _outputs: Tensor) -> LayerUse:
    return KeptGradients({nn.Parameter(torch.zeros(24, 16)): inputs})


@pytest.mark.parametrize("make", [convolution, linear, kept])
def test_a_use_holds_nothing_after_its_sum(make: Any) -> None:
    inputs, outputs = torch.randn(5, 24, 16), torch.randn(5, 24, 16)
    held = [storage(inputs), storage(outputs)]
    use = make(inputs, outputs)
    del inputs, outputs
    assert not held[0].expired()
    measured = MeasuredUse("layer", use, use.norm_bounds())
    clipped_sum([measured], dict.fromkeys(use.parameters, 0), [1.0])
    assert all(one.expired() for one in held)


def test_an_embedding_holds_nothing_after_its_sum() -> None:
    use = EmbeddingUse(nn.Embedding(9, 4), torch.randint(0, 9, (5, 3)), torch.randn(5, 3, 4))
    measured = MeasuredUse("layer", use, use.norm_bounds())
    held = storage(use.outputs)
    clipped_sum([measured], dict.fromkeys(use.parameters, 0), [1.0])
    assert held.expired()


class LiveBytes(TorchDispatchMode):
    """Follows how much memory the tensors take that were made since it began."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._live: dict[int, tuple[Any, int]] = {}
        self.peak = 0

    def __torch_dispatch__(
        self, function: Any, _types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        result = function(*arguments, **(named or {}))
        known = len(self._live)
        for part in tree_leaves(result):
            if isinstance(part, Tensor):
                storage = part.untyped_storage()
                self._live[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        if len(self._live) > known:
            self._live = {key: one for key, one in self._live.items() if not one[0].expired()}
            self.peak = max(self.peak, sum(size for _, size in self._live.values()))
        return result


def vgg() -> nn.Module:
    """Return VGG-16 for images of 32 x 32."""
    layers: list[nn.Module] = []
    before = 3
    for widths in ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3):
        for width in widths:
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()]
            before = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


def peak_of_a_step(*, private: bool, examples: int = 1024) -> int:
    """Return the peak of a step, without workspaces; its tensors have shapes but no numbers."""
    with torch.device("meta"):
        model, inputs = vgg(), torch.empty(examples, 3, 32, 32)
    with LiveBytes() as live:
        if not private:
            model(inputs).square().sum(1).sum().backward()
            return live.peak
        tracer = Tracer(model, list(model.parameters()))
        with tracer.on():
            uses = tracer.uses(model(inputs).square().sum(1), examples)
        with torch.no_grad():
            clipped_sum(uses, dict.fromkeys(model.parameters(), 0), [1.0])
    return live.peak


@pytest.mark.thorough
def test_the_peak_of_a_large_model(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = peak_of_a_step(private=False)
    # Shapes alone have no autocast.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(shifted_gram, "_patches", lambda pixels, *_: pixels)  # one kernel on a GPU
    assert peak_of_a_step(private=True) < 1.42 * plain
