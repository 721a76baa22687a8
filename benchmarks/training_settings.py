"""The models and lots that training is measured on: each setting is a row of the table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

__all__ = ["CPU_SETTINGS", "GPU_SETTINGS", "Setting"]


@dataclass(frozen=True)
class Setting:
    """A row of the table."""

    name: str
    model: Callable[[], nn.Module]
    shape: tuple[int, ...]  # of a record
    examples: int
    words: int = 0  # where records are integers below this, of which each is to tell the next one
    views: int = 1
    half: bool = False
    channels_last: bool = False
    opacus: bool = True
    exact: bool = False  # whether the mode exact is measured, too
    training: bool = False  # whether `PrivateTraining` is, with lots that are drawn
    loop: bool = False  # whether only eager steps are, in a loop over lots


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
        made: Tensor = rest + self.second(functional.relu(self.second_norm(self.first(start))))
        return made


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


def perceptron() -> nn.Module:
    """Return a small multilayer perceptron for images of 28 x 28."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


class Logits(nn.Module):
    """A model of transformers as one that returns logits: of every next word, or of classes."""

    def __init__(self, model: nn.Module, *, words: bool) -> None:
        super().__init__()
        self.model = model
        self._words = words

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits, with the classes on the second axis."""
        if self._words:
            made: Tensor = self.model(input_ids=inputs, use_cache=False).logits
            return made[:, :-1].mT
        classes: Tensor = self.model(pixel_values=inputs).logits
        return classes


def gpt2(adapters: int = 0, **changes: Any) -> nn.Module:
    """Return GPT-2 small, all of it or with adapters of LoRA of some rank."""
    import transformers  # noqa: PLC0415

    options: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**options | changes))
    if adapters:
        import peft  # noqa: PLC0415

        places = ["c_attn", "c_proj", "c_fc"]
        config = peft.LoraConfig(r=adapters, target_modules=places, fan_in_fan_out=True)
        model = peft.get_peft_model(model, config)
    return Logits(model, words=True)


def llama(**changes: Any) -> nn.Module:
    """Return a model like Llama with 110 million weights: half of the tables are its head."""
    import transformers  # noqa: PLC0415

    options: dict[str, Any] = {
        "vocab_size": 32_000,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 9,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    }
    config = transformers.LlamaConfig(**options | changes)
    return Logits(transformers.LlamaForCausalLM(config), words=True)


def vit() -> nn.Module:
    """Return ViT-B/16 for ten classes."""
    import transformers  # noqa: PLC0415

    config = transformers.ViTConfig(
        num_labels=10, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    return Logits(transformers.ViTForImageClassification(config), words=False)


def small_llama() -> nn.Module:
    """Return a transformer of 0.7 million weights."""
    blocks = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    return llama(vocab_size=1000, hidden_size=128, intermediate_size=344, **blocks)


COLOUR = (3, 32, 32)
WORDS = 50_257
TRANSFORMER: dict[str, Any] = {"training": True, "loop": True}
GPU_SETTINGS = (
    Setting(
        "VGG-16, lot 1,024, TF32",
        *(lambda: vgg(normalised=False), COLOUR, 1024),
        training=True,
    ),
    Setting("LeNet, lot 1,024", lenet, (1, 28, 28), 1024, exact=True, training=True),
    Setting(
        "WRN-16-4, 16 views of 64 images, bf16",
        wide_resnet,
        *(COLOUR, 64, 16),
        half=True,
        channels_last=True,
        opacus=False,
        training=True,
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
    Setting("GPT-2 small, 512 words, lot 32, TF32", gpt2, (512,), 32, WORDS, **TRANSFORMER),
    Setting("Llama-like, 110M, 512 words, lot 32, TF32", llama, (512,), 32, 32_000, **TRANSFORMER),
    Setting("ViT-B/16, lot 32, TF32", vit, (3, 224, 224), 32, **TRANSFORMER),
    Setting(
        "GPT-2 small, LoRA of rank 16, 512 words, lot 32, TF32",
        *(lambda: gpt2(16), (512,), 32, WORDS),
        **TRANSFORMER,
    ),
)
CPU_SETTINGS = (
    Setting("LeNet, lot 256, CPU", lenet, (1, 28, 28), 256, exact=True, training=True),
    Setting("MLP, lot 256, CPU", perceptron, (1, 28, 28), 256, training=True),
    Setting("Llama-like, 0.7M, 64 words, lot 32, CPU", small_llama, (64,), 32, 1000, **TRANSFORMER),
)
