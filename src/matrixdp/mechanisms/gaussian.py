"""The base of all Gaussian mechanisms: the release of a matrix, given a covariance.

They differ only in the covariance that they choose for a sensitivity set and a budget.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from matrixdp.covariance import Covariance, Isotropic
from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.drawing import CheckedMatrix, PreparedRelease, Promise, checked_matrix
from matrixdp.mechanisms.other_arrays import is_in_chunks, is_on_gpu
from matrixdp.mechanisms.proof import NoiseProof
from matrixdp.mechanisms.release import Release
from matrixdp.noise import ReleaseKey, SimulatedValue
from matrixdp.noise.application.threads import checked_threads
from matrixdp.noise.simulated import checked_generator
from matrixdp.privacy.budget import Budget, check_budget
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.privacy.payment import Payer, check_payer
from matrixdp.rounding import quotient_up
from matrixdp.sensitivity.sets import HasSensitivity, SensitivitySet

if TYPE_CHECKING:
    from matrixdp.mechanisms.tensors import PreparedTensor

__all__ = ["GaussianMechanism", "checked_set", "largest_norm"]


def checked_set(sensitivity: SensitivitySet | HasSensitivity, budget: Budget) -> SensitivitySet:
    """Return a sensitivity set, or that of a query; raise unless these are one and a budget."""
    members = (
        sensitivity
        if isinstance(sensitivity, SensitivitySet)
        else getattr(sensitivity, "sensitivity", None)
    )
    if not isinstance(members, SensitivitySet):
        raise InvalidParameterError(
            f"sensitivity is a {type(sensitivity).__name__}: pass FrobeniusBall, SymmetricBall, "
            "RowBounds or RowBox, or a query, which has one of them"
        )
    check_budget(budget)
    return members


def largest_norm(sensitivity: SensitivitySet) -> float:
    """Return the largest Frobenius norm of a member of a set: its l2 sensitivity, rounded up."""
    return sensitivity.radius(Isotropic(1.0)).value


@dataclass(frozen=True)
class GaussianMechanism:
    """Gaussian noise of one covariance, and the mu that it gives a sensitivity set.

    The mechanisms of this package derive from it. To use a covariance of your own, pass it to
    `IMGM`.

    Raises
    ------
    BudgetExceededError
        If the covariance is too small for the budget; the message says by what factor.

    Notes
    -----
    *Guarantee:* every release is (guarantee.epsilon, guarantee.delta)-DP, proven by the exact curve
    at ``mu``, the radius of the set under the covariance. It does not matter how that was found.
    These are the budget's numbers, except that the epsilon of a share is rounded down, because it
    may be entered again, and that of the guarantee up, because it is a promise.
    Where mu is below ``budget.mu`` the noise is larger than the promise needs, and
    ``guarantee.epsilon_at(delta)`` says what it really guarantees.
    """

    sensitivity: SensitivitySet
    budget: Budget
    covariance: Covariance

    def __post_init__(self) -> None:
        """Raise if the noise does not keep the budget."""
        object.__setattr__(self, "sensitivity", checked_set(self.sensitivity, self.budget))
        if not self.mu <= self.budget.mu:
            raise BudgetExceededError(
                f"covariance is too small for {self.budget!r}: it gives mu={self.mu!r}, so the "
                "noise must grow by a factor of "
                f"{quotient_up(self.mu, self.budget.mu)!r}; use "
                "covariance.rescaled_for(sensitivity, budget)"
            )
        _ = self.guarantee  # stated here, so that nothing can fail after a key is spent

    @cached_property
    def proof(self) -> NoiseProof:
        """What the noise is proven to give; computed once, and held by every release."""
        return NoiseProof.portable(self.sensitivity, self.covariance)

    @property
    def mu(self) -> float:
        """The radius of the set under the noise; what a release costs."""
        return self.proof.mu

    @cached_property
    def guarantee(self) -> Guarantee:
        """What every release promises."""
        return Guarantee.of_budget(
            self.budget, mu=self.mu, neighbouring=self.sensitivity.neighbouring
        )

    def release(
        self,
        matrix: Any,
        *,
        key: ReleaseKey | None = None,
        privacy_filter: Payer | None = None,
        threads: int | None = None,
    ) -> Release:
        """Return the matrix with exact noise, and what that guarantees.

        Parameters
        ----------
        matrix : ndarray, list of lists, pandas or polars DataFrame, Tensor, Dask array
            Finite numbers, two axes. A tensor, or an array of CuPy or JAX, stays on its device.
            That of an array of Dask is computed when it is needed: `distributed.release_lazily`.
            float32 stays float32; integers and booleans become float64 (integers beyond 2**53 are
            refused; on a GPU and for Dask, cast them). Labels are kept. Entries are at most about
            2**52 times the scale of their noise (2**23 times for float32): beyond that the type
            has no digits left for the noise.
        key : ReleaseKey, optional
            By default a fresh one from the operating system; a given one is spent.
        privacy_filter : PrivacyFilter or LedgerAccount, optional
            Pays for the release, after all checks and before anything is drawn. A key that is
            bound already is not paid for; an interrupt amid the payment spends the key.
        threads : int, optional
            The most threads that draw; by default as many as there are processors. The result is
            the same, and a small matrix takes one.

        Returns
        -------
        Release
            Of the same kind and labels as the matrix.

        Raises
        ------
        InvalidParameterError, ShapeError
            Before anything is drawn or paid.
        BudgetExceededError
            If the filter does not hold enough; nothing is drawn and the key is not spent.
        """
        # A plain array is what nearly everybody has.
        if type(matrix) is not np.ndarray and is_in_chunks(matrix):
            # Late, because what knows Dask is above mechanisms.
            from matrixdp.distributed.lazy import release_lazily  # noqa: PLC0415

            if threads is not None:
                raise InvalidParameterError(
                    f"threads={threads!r}: workers have their threads by themselves"
                )
            return release_lazily(self, matrix, privacy_filter=privacy_filter, key=key)
        # All checks come first: what is refused costs neither a key nor a part of a budget.
        prepared = self._prepared_on_gpu(matrix) or self.prepared(matrix)
        if key is not None and not isinstance(key, ReleaseKey):
            raise InvalidParameterError(
                f"key is a {type(key).__name__}: pass a ReleaseKey, or none for a fresh one"
            )
        workers = None if threads is None else checked_threads(threads)
        pay = None
        if privacy_filter is not None:
            check_payer(privacy_filter)
            pay = partial(privacy_filter.spend, self)
        if key is not None:
            key.check_unbound()
        fresh = ReleaseKey.generate() if key is None else key
        # Paid within the binding, so that of two releases with one key only one pays.
        return prepared.drawn(fresh, threads=workers, pay=pay)

    def release_to(
        self,
        path: str | PathLike[str],
        matrix: Any,
        *,
        privacy_filter: Payer | None = None,
        request: str | None = None,
        force: bool = False,
        threads: int | None = None,
        about: About | None = None,
    ) -> Release:
        """Release a matrix into a file and its statement, ``<path>.json``; paid once, never lost.

        Paid from an account of a ledger, a release whose process dies can be finished: call this
        again with the same request, or use ``Ledger.finish``. It has the same bits then. A filter
        remembers nothing, so what it paid is forfeited by a crash.

        Parameters
        ----------
        path : path
            As in `Release.save`.
        matrix : ndarray, list of lists, DataFrame; Dask array; or path of a ``.npy`` file
            As in `release`. A file is read in parts and may be larger than memory; the release is
            then mapped from its file, and the noise must be independent. An array of Dask may be
            larger than a machine, and becomes a folder of chunks: see ``distributed.release_to``.
        privacy_filter : PrivacyFilter or LedgerAccount, optional
            Pays for the release, after all checks and before anything is drawn.
        request : str, optional
            A name for this release. Calling again with it pays nothing: an unfinished release is
            finished, and one that is out is loaded. By default a fresh name.
        force : bool, optional
            Whether to replace existing files; by default they are refused.
        threads : int, optional
            As in `release`.
        about : About, optional
            What the statement says for people; published as it is.

        Raises
        ------
        InvalidParameterError, ShapeError
            Before anything is drawn or paid; also if the request was for another value.
        BudgetExceededError
            If the budget does not hold enough; nothing is drawn.
        StorageError
            If the files cannot be written. What was paid stays paid.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> from matrixdp import IMGM, Budget, FrobeniusBall, PrivacyFilter
        >>> paying = PrivacyFilter(Budget(1.0, 1e-5), neighbouring="replace")
        >>> mechanism = IMGM(FrobeniusBall(1.0, neighbouring="replace"), Budget(0.5, 1e-5))
        >>> with TemporaryDirectory() as folder:
        ...     path = f"{folder}/sums.csv"
        ...     release = mechanism.release_to(path, [[1.0, 2.0]], privacy_filter=paying)
        ...     Release.verify(path) == mechanism.guarantee
        True
        """
        # Late, because files are above mechanisms, and so is what knows Dask.
        if is_in_chunks(matrix):
            from matrixdp.distributed.release import release_to as release_chunks_to  # noqa: PLC0415

            if force or threads is not None:
                raise InvalidParameterError(
                    f"force={force!r}, threads={threads!r}: a folder is never replaced, so remove "
                    "it before; and workers have their threads by themselves"
                )
            return release_chunks_to(
                self, path, matrix, privacy_filter=privacy_filter, request=request, about=about
            )
        if isinstance(matrix, str | PathLike):
            from matrixdp.files.publishing.streamed_release import release_npy_to  # noqa: PLC0415

            return release_npy_to(
                self,
                path,
                matrix,
                privacy_filter=privacy_filter,
                request=request,
                force=force,
                threads=threads,
                about=about,
            )
        from matrixdp.files.publishing.paid_release import release_to  # noqa: PLC0415
        from matrixdp.files.publishing.release_file import warn_of_lost_labels  # noqa: PLC0415

        release = release_to(
            self,
            path,
            matrix,
            privacy_filter=privacy_filter,
            request=request,
            force=force,
            threads=threads,
            about=about,
        )
        warn_of_lost_labels(release, path)
        return release

    def simulate(self, matrix: Any, generator: np.random.Generator) -> SimulatedValue:
        """Return the matrix with seeded float noise of the same covariance: for experiments only.

        A `SimulatedValue` cannot become a `Release`.
        """
        checked_generator(generator)
        array = self.checked(matrix).array
        # Checked like a release, so that what can be simulated can also be released.
        noise = self.covariance.colour(generator.standard_normal(array.shape))
        return SimulatedValue(
            array=(array + noise).astype(array.dtype, copy=False),
            scale=self.covariance.entry_scales(array.shape),
        )

    def _prepared_on_gpu(self, matrix: Any) -> "PreparedTensor | None":
        """Return the release of an array on a GPU, or None if its noise is drawn elsewhere."""
        # A plain array is what nearly everybody has.
        if type(matrix) is np.ndarray or not is_on_gpu(matrix):
            return None
        # Late, because it imports torch.
        from matrixdp.mechanisms.tensors import prepared_tensor  # noqa: PLC0415

        return prepared_tensor(matrix, self._promise)

    def checked(self, matrix: Any) -> CheckedMatrix:
        """Return a matrix that the mechanism may release, or raise with the reason."""
        return checked_matrix(matrix, self.proof)

    def prepared(self, matrix: Any) -> PreparedRelease:
        """Return a release that can be paid for and drawn, or raise with the reason why not."""
        checked = self.checked(matrix)
        _ = checked.drawing.noise  # made here: it raises if there is no such noise
        return PreparedRelease(checked, self._promise)

    @property
    def _promise(self) -> Promise:
        return Promise(self.proof, self.guarantee, type(self).__name__)
