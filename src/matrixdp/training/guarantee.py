"""The guarantee of a private training run: a frozen statement to be printed and kept."""

from dataclasses import dataclass
from typing import Literal

from matrixdp.privacy import Accountant
from matrixdp.rounding import shown_down, shown_up
from matrixdp.training.units import Units

__all__ = ["Lots", "Mode", "Noise", "TrainingGuarantee"]

Mode = Literal["fast", "exact"]
Noise = Literal["exact", "simulated"]
Lots = Literal["secure", "seeded"]

_ACCOUNTS = {
    Accountant.PLD: "privacy loss distributions",
    Accountant.RDP: "Rényi divergences",
    Accountant.MOMENTS: "the moments accountant",
    Accountant.CLAIMS: "composition of amplified claims",
}
# What the claim takes for granted, by mode.
_ASSUMPTIONS: dict[Mode, str] = {
    "fast": (
        "Mode fast: each {unit} is clipped by a proven upper bound of its gradient's norm, and "
        "batches are added up in float64. Three things are assumed, not proven: that the losses "
        "keep {unit}s apart, which was checked on made-up records only; that the rounding error of "
        "the sum within a batch is negligible; and that the kernels give a {unit} the same "
        "gradient whatever else is in its batch."
    ),
    "exact": (
        "Mode exact: the model runs on one {unit} at a time; each clipped gradient is rounded to "
        "whole steps, and these are added up in integers. So one {unit} moves the sum by at most "
        "the clip norm, in exact arithmetic. It is assumed that neither the model nor the data set "
        "keeps a memory of earlier records, as code that compiles itself while it runs does."
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingGuarantee:
    """What the whole of a plan guarantees, and how it was carried out.

    Made by ``PrivateTraining.guarantee``. It is about all planned steps. If training is stopped
    early, for instance because the accuracy looks good, this still is what may be claimed.

    Attributes
    ----------
    epsilon, delta : float
        Under adding or removing one record, or one unit with all of its records.
    sampling_rate : float
        The probability of each record to be in a step.
    steps : int
        How many steps there are.
    noise_multiplier : float
        The scale of the noise over the sensitivity of the sum of gradients.
    accountant : Accountant
        How epsilon was found.
    mode : {"fast", "exact"}
        How gradients are clipped and added up.
    noise : {"exact", "simulated"}
        Whether the noise is exact and secret, or seeded, for experiments.
    lots : {"secure", "seeded"}
        Whether lots come from AES-256 under keys of the operating system, or from a seed.
    shaped_layers : tuple of str
        The layers whose noise has a covariance of its own; the rest is independent noise.
    debug : bool
        Whether steps stop at records that are not finite, which tells that these are there.
    ranks : int
        How many processes took part.
    units : Units or None
        What is protected, if it is not a single record.
    """

    epsilon: float
    delta: float
    sampling_rate: float
    steps: int
    noise_multiplier: float
    accountant: Accountant
    mode: Mode
    noise: Noise
    lots: Lots
    shaped_layers: tuple[str, ...] = ()
    debug: bool = False
    ranks: int = 1
    units: Units | None = None

    @property
    def unit(self) -> str:
        """What is protected: a record, or what the units are called."""
        return "record" if self.units is None else self.units.name

    @property
    def protects(self) -> bool:
        """Whether noise and lots are secret, and nothing else is revealed.

        What comes from a seed protects nothing, nor does debugging.
        """
        return self.noise == "exact" and self.lots == "secure" and not self.debug

    def __str__(self) -> str:
        """Say the guarantee in sentences, its numbers rounded to the private side."""
        claim = (
            f"({shown_up(self.epsilon, 4)}, {shown_up(self.delta, 4)})-differential privacy under "
            f"adding or removing {self._unit()}"
        )
        shape = f", shaped in {', '.join(self.shaped_layers)}" if self.shaped_layers else ""
        how = (
            f"{self.steps} steps on {self._sampling()}, noise multiplier "
            f"{shown_down(self.noise_multiplier, 4)}{shape}, accounted for by {self._account()}."
        )
        # First, so that nobody quotes the numbers of an experiment as a promise.
        warning = "" if self.protects else "An experiment, which protects nothing; it simulates: "
        stops = " Debugging: a step stops at records that are not finite." if self.debug else ""
        sources = f"Noise: {self.noise}. Lots: {self.lots}."
        assumed = _ASSUMPTIONS[self.mode].format(unit=self.unit)
        return f"{warning}{claim} {how} {sources}{stops} {assumed}{self._sums()}"

    def _sums(self) -> str:
        if self.ranks == 1:
            return ""
        rounding = "" if self.mode == "exact" else ", whose rounding was taken off the clip norm"
        return (
            f" {self.ranks} ranks, each with the {self.unit}s of its own numbers; their sums were "
            f"added up as integers{rounding}, and the processes and their network are trusted. It "
            "is assumed that a number is the same record on all ranks, which was checked for the "
            "first record of tensors, the indices of a Subset and labels of units only, and that "
            "losses get nothing from other ranks."
        )

    def _unit(self) -> str:
        if self.units is None:
            return "one record."
        return (
            f"one {self.unit} with all of its records. A step takes at most "
            f"{self.units.most_records} records of each {self.unit}, which is enforced. It is "
            f"assumed that labels say whose each record is, the same in all steps."
        )

    def _sampling(self) -> str:
        if self.sampling_rate == 1.0:
            return f"all {self.unit}s"
        samples = "Poisson samples" if self.units is None else f"Poisson samples of {self.unit}s"
        return f"{samples} at rate {shown_up(self.sampling_rate, 4)}"

    def _account(self) -> str:
        exact = self.sampling_rate == 1.0 and self.accountant is Accountant.PLD
        return "the exact Gaussian curve" if exact else _ACCOUNTS[self.accountant]
