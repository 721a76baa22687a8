"""The trained parameters: their names, their clipping groups, and that they stay the same."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite

import torch
from torch import Tensor, nn, optim
from torch.nn.parameter import is_lazy

from matrixdp.errors import InvalidParameterError
from matrixdp.training.guarantee import Mode
from matrixdp.training.model.compiled import check_uncompiled
from matrixdp.training.model.refused_layers import check_dense_gradients, check_layer
from matrixdp.training.model.tensors import TensorState
from matrixdp.training.plan import TrainingPlan

__all__ = ["Trainable"]


class Trainable:
    """The parameters of a model that are trained, as they were when training began.

    Parameters
    ----------
    model : nn.Module
        Whose parameters they are.
    optimizers : sequence of optim.Optimizer
        Must update exactly these parameters.
    plan : TrainingPlan
        Gives them to groups, each with a clip norm.
    mode : {"fast", "exact"}
        How gradients are formed.

    Attributes
    ----------
    names : dict of Parameter to str
        The name of each parameter.
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
        optimizers: Sequence[optim.Optimizer],
        plan: TrainingPlan,
        mode: Mode,
    ) -> None:
        self._model = model
        self._mode = mode
        self._optimizers = optimizers
        self._checked: set[tuple[nn.Module, bool]] = set()
        self._check_layers()
        _check_shapes(model)
        # By identity: replacing a parameter by an equal one is a change.
        self.names = dict(_trained(model))
        self._identities = set(map(id, self.names))
        if not self.names:
            raise InvalidParameterError(
                "the model has no parameter that requires a gradient: there is nothing to train"
            )
        for parameter, name in self.names.items():
            if parameter.is_complex():
                raise InvalidParameterError(
                    f"parameter {name!r} holds complex numbers, of which only real parts would be "
                    "trained: hold real and imaginary parts in real parameters, and use "
                    "torch.view_as_complex"
                )
        self._check_optimizers()
        prefixes = [prefix for prefix, _ in plan.bounds]
        self.groups = {parameter: _group(name, prefixes) for parameter, name in self.names.items()}
        self.bounds = tuple(bound for _, bound in plan.bounds)
        self._check_groups(prefixes)
        # What cannot be compared is found here, before a step is spent.
        TensorState(model)

    def _check_groups(self, prefixes: Sequence[str]) -> None:
        # A bound without parameters is not wrong, but everyone pays for it in noise.
        unused = set(range(len(prefixes))) - set(self.groups.values())
        if unused:
            raise InvalidParameterError(
                f"clip_norm names {prefixes[min(unused)]!r}, to which no trained parameter "
                "belongs: leave it out, as its bound adds to the noise"
            )
        filled = {group for parameter, group in self.groups.items() if parameter.numel()}
        for parameter, group in self.groups.items():
            if group not in filled:
                raise InvalidParameterError(
                    f"parameter {self.names[parameter]!r} is empty, and so are all trained "
                    "parameters that share its clip norm: freeze it with requires_grad_(False)"
                )

    def __iter__(self) -> Iterator[nn.Parameter]:
        """Go through the parameters."""
        return iter(self.names)

    @property
    def device(self) -> torch.device:
        """The device of the first parameter."""
        return next(iter(self)).device

    def check_unchanged(self) -> None:
        """Raise if other parameters are trained than when training began, or a layer mixes records.

        A layer without parameters can mix records too.
        """
        # By identity, since tensors are slow to look up.
        if self._check_layers() != self._identities:
            self._refuse_others(dict(_trained(self._model)))
        self._check_optimizers()

    def _refuse_others(self, present: Mapping[nn.Parameter, str]) -> None:
        """Raise about parameters that are not those that training began with."""
        for change, before, after in (
            ("added or unfrozen", self.names, present),
            ("removed or frozen", present, self.names),
        ):
            for parameter, name in after.items():
                if parameter not in before:
                    raise InvalidParameterError(
                        f"parameter {name!r} was {change} after PrivateTraining was made: change "
                        "the model first, then make its optimiser and PrivateTraining"
                    )

    def finite_check(self) -> Callable[[], None]:
        """Begin to look whether every trained number is finite; return what raises if one is not.

        On a GPU nothing waits before that is called, so that the device goes on meanwhile. On a
        processor this raises at once. Parameters are public, and so is whether they are finite: no
        record could be trained with others.

        Raises
        ------
        InvalidParameterError
            If a parameter holds NaN or infinity.
        """
        values: list[Tensor] = [parameter for parameter in self.names if parameter.numel()]
        with torch.no_grad():
            # A norm is finite only if all numbers are; of huge ones it may not be.
            norms = torch._foreach_norm(values)  # noqa: SLF001
            device = norms[0].device
            found = torch.stack([one.to(device) for one in norms])
        there = found.is_cuda
        here = torch.empty_like(found, device="cpu", pin_memory=there)
        here.copy_(found, non_blocking=there)
        if not there:
            self._check_norms(here)
            return _nothing
        copied = torch.cuda.Event()
        copied.record(torch.cuda.current_stream(device))

        def check() -> None:
            copied.synchronize()
            self._check_norms(here)

        return check

    def _check_norms(self, norms: Tensor) -> None:
        if all(map(isfinite, norms.tolist())):
            return
        for parameter, name in self.names.items():
            if not parameter.isfinite().all():
                raise InvalidParameterError(
                    f"parameter {name!r} holds NaN or infinity: load a checkpoint from before, and "
                    "lower the learning rate. With 16 bits use bfloat16 rather than float16"
                )

    def forget_gradients(self) -> None:
        """Remove all gradients, so that any that appear are known to be new."""
        for parameter in self.names:
            parameter.grad = None

    def _check_layers(self) -> set[int]:
        """Raise if a layer mixes records; return the identities of what requires a gradient."""
        found: set[int] = set()
        for name, module in self._model.named_modules():
            # What normalises over the batch depends on the mode of the layer.
            if (module, module.training) not in self._checked:
                check_uncompiled(module, name)
                check_layer(module, name)
                if self._mode == "exact":
                    check_dense_gradients(module, name)
                self._checked.add((module, module.training))
            for parameter in module._parameters.values():  # noqa: SLF001
                if parameter is not None and parameter.requires_grad:
                    found.add(id(parameter))
        return found

    def _check_optimizers(self) -> None:
        parameters = [
            parameter
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        if set(map(id, parameters)) == self._identities:  # as it nearly always is
            return
        held = set(parameters)
        # A foreign parameter would get its gradient from autograd, unclipped and without noise.
        if any(parameter.requires_grad and parameter not in self.names for parameter in held):
            raise InvalidParameterError(
                "the optimiser holds a parameter that is not one of the model's: its gradient "
                "would not be private; make it a part of the model"
            )
        # The optimiser would follow a gradient of a frozen parameter that was left from elsewhere.
        if any(parameter.grad is not None and parameter not in self.names for parameter in held):
            raise InvalidParameterError(
                "the optimiser holds a frozen parameter that has a gradient, and would follow it "
                "without clipping or noise: call optimizer.zero_grad() first"
            )
        # One that is not updated would still be part of every norm, and take its share of the clip.
        for parameter, name in self.names.items():
            if parameter not in held:
                raise InvalidParameterError(
                    f"parameter {name!r} requires a gradient but the optimiser does not update it: "
                    "freeze it with requires_grad_(False), or give it to the optimiser"
                )


def _nothing() -> None:
    """Raise nothing: all was looked at."""


def _check_shapes(model: nn.Module) -> None:
    """Raise for a lazy layer that has not seen an input."""
    for name, parameter in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(parameter):
            raise InvalidParameterError(
                f"{name!r} has no shape before its lazy layer has seen an input: run the model "
                "once, on made-up rows, before its optimiser and PrivateTraining are made"
            )


def _trained(model: nn.Module) -> list[tuple[nn.Parameter, str]]:
    return [
        (parameter, name) for name, parameter in model.named_parameters() if parameter.requires_grad
    ]


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
