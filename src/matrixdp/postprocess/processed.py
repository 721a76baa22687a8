"""A release and what was made of it: the guarantee stays, and the steps are listed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from matrixdp.errors import FileFormatError, InvalidParameterError, MatrixDPError
from matrixdp.files.publishing.release_file import warn_of_lost_labels
from matrixdp.files.publishing.releases import load_stated_release, save_release
from matrixdp.files.schemas.steps import PARAMETERS, StepSchema
from matrixdp.mechanisms.labelled import without_labels
from matrixdp.mechanisms.release import Release
from matrixdp.mechanisms.workload_release import WorkloadRelease
from matrixdp.parameters import members_of, real_array
from matrixdp.postprocess.james_stein import EfronMorris, JamesStein
from matrixdp.postprocess.projections import (
    Clamp,
    CorrelationMatrix,
    PositiveSemidefinite,
    Simplex,
)
from matrixdp.postprocess.shrinkage import SingularValueShrinkage
from matrixdp.postprocess.spectrum import is_symmetric
from matrixdp.postprocess.step import FloatArray, Step
from matrixdp.postprocess.thresholds import EntryThreshold, SingularValueThreshold
from matrixdp.privacy.guarantee import Guarantee

__all__ = ["ProcessedRelease", "process", "stated_step", "step_of"]


@dataclass(frozen=True, eq=False, repr=False)
class ProcessedRelease:
    """A matrix that steps made of a release, with the release's guarantee.

    No step sees the data, so no step costs budget. The standard errors and confidence bounds of the
    release do not describe the processed matrix, so it has none.

    Parameters
    ----------
    release : Release
        What was released.
    steps : sequence of Step
        What to do with it, in this order.

    Attributes
    ----------
    value : ndarray or DataFrame
        The processed matrix, with the labels of the release, in float64.

    Raises
    ------
    InvalidParameterError, ShapeError
        If a step does not fit the release. All are checked before the first one is applied.
    """

    release: Release
    steps: tuple[Step, ...]
    value: Any = field(init=False)

    def __post_init__(self) -> None:
        """Check everything, then apply the steps."""
        steps = _checked_steps(self.release, self.steps)
        numbers, relabel = without_labels(self.release.value)
        value = np.array(real_array(numbers, "release", axes=2, booleans=True))
        # A release that was built by hand may not be what its noise says.
        if self.release.covariance.mirrored and not is_symmetric(value):
            raise InvalidParameterError(
                "release has symmetric noise, but its value is not symmetric: take it from a "
                "mechanism's release()"
            )
        object.__setattr__(self, "steps", steps)
        applied = _applied(value, self.release, steps)
        object.__setattr__(self, "value", applied if relabel is None else relabel(applied))

    @property
    def guarantee(self) -> Guarantee:
        """What is promised: that of the release."""
        return self.release.guarantee

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix."""
        return self.release.shape

    def __array__(
        self,
        dtype: DTypeLike | None = None,
        copy: bool | None = None,  # noqa: FBT001
    ) -> NDArray[Any]:
        """Return the processed matrix without its labels: what numpy and scikit-learn see."""
        return np.array(self.value, dtype=dtype, copy=copy)

    @property
    def applied(self) -> tuple[str, ...]:
        """The steps in words."""
        return tuple(str(step) for step in self.steps)

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the release, and beside it the statement ``<path>.json``, which lists the steps.

        The file holds the matrix as it was *released*: only that can be proven. `Release.load`
        reads it as the release; `load` applies the steps again. A file of the processed matrix,
        such as one of ``numpy.save``, is an export without a certificate.

        Parameters
        ----------
        path : path
            As of `Release.save`.
        force : bool, optional
            Whether to replace existing files; by default they are refused.

        Raises
        ------
        InvalidParameterError
            If a target exists or its folder does not, or a step is not part of the library;
            nothing is written.
        StorageError
            If the disk is full; no target is made.
        """
        applied = tuple(stated_step(step) for step in self.steps)
        save_release(self.release, path, force=force, applied=applied)
        warn_of_lost_labels(self.release, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "ProcessedRelease":
        """Read a saved release, prove its guarantee again, and apply its steps again.

        The last digits of the value may differ between machines.

        Raises
        ------
        FileFormatError
            If the file is not a release that proves itself, lists no steps, or lists steps that
            do not fit.
        """
        saved = load_stated_release(path)
        if not saved.applied:
            raise FileFormatError(f"{path} is a release without steps: read it with Release.load")
        try:
            return cls(saved.release, tuple(step_of(schema) for schema in saved.applied))
        except MatrixDPError as error:
            raise FileFormatError(
                f"the statement of {path} lists steps that do not fit it ({error})"
            ) from error

    def __repr__(self) -> str:
        """Say what was done and what is promised."""
        done = "; then ".join(self.applied)
        return f"ProcessedRelease(shape={self.shape}, {done}: {self.guarantee})"


def process(release: Release, *steps: Step) -> ProcessedRelease:
    """Apply steps to a release, one after the other; the guarantee stays as it is.

    Parameters
    ----------
    release : Release
        From a mechanism's or a query's ``release``.
    *steps : Step
        At least one. A step that uses the noise must be the first: afterwards the noise is
        no longer what the release states.

    Raises
    ------
    InvalidParameterError, ShapeError
        If a step does not fit the release. All are checked before the first one is applied.
    CalibrationError
        If `CorrelationMatrix` did not converge.

    Examples
    --------
    >>> import numpy as np
    >>> import matrixdp as mdp
    >>> from matrixdp.postprocess import PositiveSemidefinite, SingularValueShrinkage, process
    >>> from matrixdp.queries import Gram, PublicBounds
    >>> query = Gram(PublicBounds(20, norm=1.0), neighbouring="replace")
    >>> data = np.random.default_rng(0).standard_normal((1000, 20)) / 5
    >>> release = query.release(data, mdp.Budget(epsilon=1.0, delta=1e-5))
    >>> better = process(release, SingularValueShrinkage(), PositiveSemidefinite())
    >>> better.applied[1]
    'projected on the positive semidefinite matrices'
    >>> better.guarantee == release.guarantee
    True
    """
    return ProcessedRelease(release, steps)


def _checked_steps(release: object, steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps, if all of them fit the release in their order."""
    if isinstance(release, WorkloadRelease):
        raise InvalidParameterError(
            "release is a WorkloadRelease, whose answers are consistent already: use "
            "nonnegative_estimate, or pass release.measurements"
        )
    if isinstance(release, ProcessedRelease):
        raise InvalidParameterError(
            "release is processed already: pass release.release, and all steps at once"
        )
    if not isinstance(release, Release):
        raise InvalidParameterError(
            f"release is a {type(release).__name__}: pass the result of a mechanism's release()"
        )
    members = members_of(steps, "steps", "a tuple of steps")
    if not members:
        raise InvalidParameterError("steps is empty: name at least one")
    for index, step in enumerate(members):
        if not isinstance(step, Step):
            raise InvalidParameterError(
                f"steps[{index}] is a {_kind(step)}: pass a step, such as PositiveSemidefinite()"
            )
        if index and step.needs_noise:
            raise InvalidParameterError(
                f"steps[{index}], {type(step).__name__}, uses the noise of the release, "
                "which earlier steps have changed: put it first"
            )
        step.check(release.shape, release.covariance)
    return members


def _kind(step: object) -> str:
    # A class without its brackets is the likeliest mistake.
    return f"class ({step.__name__})" if isinstance(step, type) else type(step).__name__


def _applied(value: FloatArray, release: Release, steps: tuple[Step, ...]) -> FloatArray:
    for index, step in enumerate(steps):
        # Whatever overflows is reported below, by name.
        with np.errstate(all="ignore"):
            value = step.apply(value, release.covariance)
        if value.shape != release.shape or not bool(np.isfinite(value).all()):
            raise InvalidParameterError(
                f"steps[{index}], {type(step).__name__}, did not give a finite matrix of the "
                "release's shape: its numbers are too large, or the step is wrong"
            )
    return value


_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        SingularValueShrinkage,
        SingularValueThreshold,
        EntryThreshold,
        JamesStein,
        EfronMorris,
        PositiveSemidefinite,
        CorrelationMatrix,
        Simplex,
        Clamp,
    )
}


def stated_step(step: Step) -> StepSchema:
    """Return the schema of a step, or raise if the library could not read it again."""
    kind: Any = type(step).__name__
    # The class itself: one from elsewhere may do something else than what the schema says.
    if _KINDS.get(kind) is not type(step):
        raise InvalidParameterError(
            f"a {kind} cannot be saved, because it is not part of the library: save the release, "
            "and process it again when it is loaded"
        )
    return StepSchema(kind, **{name: _plain(getattr(step, name)) for name in PARAMETERS[kind]})


def step_of(schema: StepSchema) -> Step:
    """Return the step of a schema; its constructor checks the parameters."""
    parameters = {name: getattr(schema, name) for name in PARAMETERS[schema.kind]}
    step: Step = _KINDS[schema.kind](**parameters)
    return step


def _plain(parameter: float | str | FloatArray | None) -> Any:
    """Return a parameter as JSON has it: matrices as nested lists of floats."""
    return (
        parameter
        if isinstance(parameter, (float, str)) or parameter is None
        else parameter.tolist()
    )
