"""The end of a step: noise on the sum of its lot, and an optimiser that follows it."""

from typing import Protocol

from torch import Tensor, nn, optim

from matrixdp.training.step_noise import StepNoise
from matrixdp.training.trainable import Trainable

__all__ = ["NoisyStep", "Summed"]


class Summed(Protocol):
    """A lot whose gradients were clipped and added up."""

    @property
    def sums(self) -> dict[nn.Parameter, Tensor]:
        """The sum for each parameter."""

    def check(self) -> None:
        """Raise if no step may be taken with it."""


class NoisyStep:
    """Updates parameters by sums of lots whose steps are spent.

    Parameters
    ----------
    noise : StepNoise
        What is added to the sums.
    trainable : Trainable
        The parameters.
    optimizer : optim.Optimizer
        Follows the noisy means.
    lot_size : float
        The expected one, by which sums are divided. It is public; dividing by the drawn size would
        reveal that.
    """

    def __init__(
        self, noise: StepNoise, trainable: Trainable, optimizer: optim.Optimizer, lot_size: float
    ) -> None:
        self._noise = noise
        self._trainable = trainable
        self._optimizer = optimizer
        self._lot_size = lot_size

    def take(self, total: Summed, number: int) -> None:
        """Add the noise of a step to the sum of its lot, and let the optimiser follow it.

        Parameters
        ----------
        total : Summed
            The lot.
        number : int
            Of the step, on which simulated noise depends.
        """
        total.check()
        matrices = self._noise.gathered(total.sums)
        for parameter, mean in self._noise.noisy_means(matrices, number, self._lot_size):
            parameter.grad = mean.to(parameter.dtype)
        self._optimizer.step()
        self._trainable.forget_gradients()
