"""The end of a step: noise on the sum of its lot, and optimisers that follow it."""

from collections.abc import Sequence

from torch import optim

from matrixdp.training.model.trainable import Trainable
from matrixdp.training.noise.blocks import Sums
from matrixdp.training.noise.step_noise import StepNoise

__all__ = ["NoisyStep"]


class NoisyStep:
    """Updates parameters by sums of lots whose steps are spent.

    Parameters
    ----------
    noise : StepNoise
        What is added to the sums.
    trainable : Trainable
        The parameters.
    optimizers : sequence of optim.Optimizer
        They follow the noisy means.
    lot_size : float
        The expected one, by which sums are divided. It is public; dividing by the drawn size would
        reveal that.
    """

    def __init__(
        self,
        noise: StepNoise,
        trainable: Trainable,
        optimizers: Sequence[optim.Optimizer],
        lot_size: float,
    ) -> None:
        self._noise = noise
        self._trainable = trainable
        self._optimizers = optimizers
        self._lot_size = lot_size

    def take(self, sums: Sums, number: int) -> None:
        """Add the noise of a step to the sum of its lot, and let the optimisers follow it.

        Parameters
        ----------
        sums : mapping
            The sum of the lot.
        number : int
            Of the step, on which simulated noise depends.
        """
        matrices = self._noise.gathered(sums)
        for parameter, mean in self._noise.noisy_means(matrices, number, self._lot_size):
            parameter.grad = mean.to(parameter.dtype)  # a bias may be of another type
        for optimizer in self._optimizers:
            optimizer.step()
        self._trainable.forget_gradients()
