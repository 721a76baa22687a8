"""The trained parameters: their names, their clipping groups, and that they stay the same."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn, optim
from torch.nn.parameter import is_lazy

from matrixdp.errors import InvalidParameterError
from matrixdp.training.layers.instance_gradient import right_instance_gradients
from matrixdp.training.layers.table import check_layer
from matrixdp.training.plan import TrainingPlan
from matrixdp.training.uncompiled import check_uncompiled

__all__ = ["ModelState", "Trainable", "tensors_of"]

ModelState = dict[str, tuple[Tensor, int, int]]
"""For each parameter and buffer the tensor, its place, and how often it was changed there."""


class Trainable:
    """The parameters of a model that are trained, as they were when training began.

    Parameters
    ----------
    model : nn.Module
        Whose parameters they are.
    optimizer : optim.Optimizer
        Must update exactly these parameters.
    plan : TrainingPlan
        Gives them to groups, each with a clip norm.
    check : callable, optional
        Raises if a layer, given with its name, cannot be trained privately; by default those that
        mix examples.

    Attributes
    ----------
    groups : dict of Parameter to int
        The group of each parameter.
    bounds : tuple of float
        The clip norm of each group.

    Raises
    ------
    InvalidParameterError
        If something cannot be trained privately; the message names it.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: optim.Optimizer,
        plan: TrainingPlan,
        check: Callable[[nn.Module, str], None] = check_layer,
    ) -> None:
        self._model = model
        self._check_layer = check
        self._checked: set[nn.Module] = set()
        self._check_layers()
        _check_shapes(model)
        self._optimizer = optimizer
        # By identity: replacing a parameter by an equal one is a change.
        self._names = dict(_trained(model))
        if not self._names:
            raise InvalidParameterError(
                "the model has no parameter that requires a gradient: there is nothing to train"
            )
        for parameter, name in self._names.items():
            if parameter.is_complex():
                raise InvalidParameterError(
                    f"parameter {name!r} holds complex numbers, of which only real parts would be "
                    "trained: hold real and imaginary parts in real parameters, and use "
                    "torch.view_as_complex"
                )
        if isinstance(optimizer, optim.LBFGS):
            raise InvalidParameterError(
                "LBFGS evaluates its closure several times in a step, and each evaluation would "
                "need noise of its own: use an optimiser that takes one gradient per step"
            )
        if isinstance(optimizer, optim.SparseAdam):
            raise InvalidParameterError(
                "SparseAdam takes sparse gradients only, and noise makes every gradient dense: use "
                "another optimiser, such as Adam"
            )
        self._check_optimizer()
        prefixes = [prefix for prefix, _ in plan.bounds]
        self.groups = {part: _group(name, prefixes) for part, name in self._names.items()}
        self.bounds = tuple(bound for _, bound in plan.bounds)
        # A bound without parameters is not wrong, but everyone pays for it in noise.
        unused = set(range(len(prefixes))) - set(self.groups.values())
        if unused:
            raise InvalidParameterError(
                f"clip_norm names {prefixes[min(unused)]!r}, to which no trained parameter "
                "belongs: leave it out, as its bound adds to the noise"
            )
        filled = {group for part, group in self.groups.items() if part.numel()}
        for part, group in self.groups.items():
            if group not in filled:
                raise InvalidParameterError(
                    f"parameter {self._names[part]!r} is empty, and so are all trained parameters "
                    "that share its clip norm: freeze it with requires_grad_(False)"
                )
        # What cannot be compared is found here, before a step is spent.
        self.state()

    @property
    def names(self) -> dict[nn.Parameter, str]:
        """The name of each parameter."""
        return self._names

    def __iter__(self) -> Iterator[nn.Parameter]:
        """Go through the parameters."""
        return iter(self._names)

    def check_unchanged(self) -> None:
        """Raise if other parameters are trained than when training began, or a layer mixes records.

        A layer without parameters can mix records too.
        """
        self._check_layers()
        present = dict(_trained(self._model))
        for change, before, after in (
            ("added or unfrozen", self._names, present),
            ("removed or frozen", present, self._names),
        ):
            for parameter, name in after.items():
                if parameter not in before:
                    raise InvalidParameterError(
                        f"parameter {name!r} was {change} after PrivateTraining was made: change "
                        "the model first, then make its optimiser and PrivateTraining"
                    )
        self._check_optimizer()

    def check_finite(self) -> None:
        """Raise if a trained parameter holds NaN or infinity; waits for the device.

        No record could be trained with it. Parameters are public, so this tells nothing about any.
        """
        parts = [part.detach() for part in self._names if part.numel()]
        # The largest of each, which is no number if one of them is none.
        largest = torch._foreach_norm(parts, math.inf)  # noqa: SLF001
        device = largest[0].device
        if bool(torch.stack([one.to(device, torch.float64) for one in largest]).isfinite().all()):
            return
        wrong = next(name for part, name in self._names.items() if not part.isfinite().all())
        raise InvalidParameterError(
            f"parameter {wrong!r} holds NaN or infinity: load a checkpoint from before, and lower "
            "the learning rate. With 16 bits use bfloat16 rather than float16"
        )

    def forget_gradients(self) -> None:
        """Remove all gradients, so that any that appear are known to be new."""
        for parameter in self._names:
            parameter.grad = None

    def check_no_gradients(self) -> None:
        """Raise if a parameter received a gradient that was not clipped."""
        for parameter, name in self._names.items():
            if parameter.grad is not None:
                self.forget_gradients()
                raise InvalidParameterError(
                    f"parameter {name!r} received a gradient that no layer accounts for, so that "
                    "it cannot be clipped: call the layer that holds it instead of using it "
                    "directly, and leave out activation checkpointing, torch.jit and other "
                    "calls of backward()"
                )

    def right_gradients(self) -> AbstractContextManager[None]:
        """Return a block within which torch gives a row the same gradient alone as in a batch."""
        return right_instance_gradients(self._checked)

    def state(self) -> ModelState:
        """Return what `check_state` compares with.

        Raises
        ------
        InvalidParameterError
            For a tensor that does not tell when it is changed.
        """
        # Frozen ones may be a codebook or an average, and those that are trained change in `step`.
        # The tensors themselves, so that nothing else can take their places meanwhile.
        return {
            name: (part, _place(part), _version(name, part))
            for name, part in tensors_of(self._model)
        }

    def check_state(self, before: ModelState) -> None:
        """Raise if a buffer or a parameter was changed since: running the model must have done it.

        The change has no noise, and what follows depends on it: on the records themselves, or on
        how many of them there were. Writing through ``.data`` is not noticed.
        """
        now = self.state()
        for name in sorted(now.keys() | before.keys()):
            old, new = before.get(name), now.get(name)
            if old is None or new is None:
                raise InvalidParameterError(
                    f"{name} was {'added' if old is None else 'removed'} while a batch was out: "
                    "change the model first, then make its optimiser and PrivateTraining"
                )
            if old[0] is not new[0] or old[1:] != new[1:]:
                raise InvalidParameterError(
                    f"{name} was changed by the forward or backward pass, and would carry "
                    "something from these records to others without noise: switch its layer to "
                    "eval(), leave the layer, the hook or flatten_parameters() out, or fill it "
                    "before training"
                )

    def _check_layers(self) -> None:
        for name, module in self._model.named_modules():
            if module not in self._checked:
                check_uncompiled(module, name)
                self._check_layer(module, name)
                self._checked.add(module)

    def _check_optimizer(self) -> None:
        held = set(_held(self._optimizer))
        # A foreign parameter would get its gradient from autograd, unclipped and without noise.
        if any(part.requires_grad and part not in self._names for part in held):
            raise InvalidParameterError(
                "the optimiser holds a parameter that is not one of the model's: its gradient "
                "would not be private; make it a part of the model"
            )
        # The optimiser would follow a gradient of a frozen parameter that was left from elsewhere.
        if any(part.grad is not None and part not in self._names for part in held):
            raise InvalidParameterError(
                "the optimiser holds a frozen parameter that has a gradient, and would follow it "
                "without clipping or noise: call optimizer.zero_grad() first"
            )
        # One that is not updated would still be part of every norm, and take its share of the clip.
        for parameter, name in self._names.items():
            if parameter not in held:
                raise InvalidParameterError(
                    f"parameter {name!r} requires a gradient but the optimiser does not update it: "
                    "freeze it with requires_grad_(False), or give it to the optimiser"
                )


def tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Go through all parameters and buffers of a model: in one go, as every batch does it."""
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        for kind, tensors in (("parameter", module._parameters), ("buffer", module._buffers)):  # noqa: SLF001
            for own, part in tensors.items():
                if part is not None:
                    yield f"{kind} {prefix + own!r}", part


def _check_shapes(model: nn.Module) -> None:
    """Raise for a lazy layer that has not seen an input."""
    for name, part in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(part):
            raise InvalidParameterError(
                f"{name!r} has no shape before its lazy layer has seen an input: run the model "
                "once, on made-up rows, before its optimiser and PrivateTraining are made"
            )


def _place(part: Tensor) -> int:
    """Return where a tensor lies; of sparse ones, whose parts move, the version tells enough."""
    return part.data_ptr() if part.layout is torch.strided else 0


def _version(name: str, part: Tensor) -> int:
    if part.is_inference():
        raise InvalidParameterError(
            f"{name} was made within torch.inference_mode(), and does not tell when it is changed: "
            "make it outside, or put a clone() in its place"
        )
    return part._version  # noqa: SLF001


def _trained(model: nn.Module) -> Iterable[tuple[nn.Parameter, str]]:
    return [(part, name) for name, part in model.named_parameters() if part.requires_grad]


def _held(optimizer: optim.Optimizer) -> Iterable[Tensor]:
    return [part for group in optimizer.param_groups for part in group["params"]]


def _group(name: str, prefixes: list[str]) -> int:
    """Return the number of the longest prefix, in whole words, that a name has."""
    fitting = [
        number
        for number, prefix in enumerate(prefixes)
        if prefix in ("", name) or name.startswith(f"{prefix}.")
    ]
    if not fitting:
        raise InvalidParameterError(
            f"clip_norm has no bound for parameter {name!r}: name it or its module, or give the "
            "rest a bound under the name ''"
        )
    return max(fitting, key=lambda number: len(prefixes[number]))
