"""Fits that are counted, because each spends, and a warning of what several spend together."""

import warnings
from collections.abc import Sequence
from typing import Self, cast

from sklearn.base import BaseEstimator

from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.composition import composed_mu
from matrixdp.privacy.payment import Payer, check_payer
from matrixdp.rounding import shown_up

__all__ = ["CountedFits", "RepeatedSpendingWarning"]


class RepeatedSpendingWarning(UserWarning):
    """A fit is one of several of an estimator and its clones; each spends its own budget."""


class CountedFits(BaseEstimator):
    """An estimator whose fits, and those of its clones, are counted unless something pays."""

    def _before_release(self, budget: Budget, payer: Payer | None, leaks: Sequence[str]) -> None:
        """Refuse what cannot be paid for, and warn of what cannot be undone; before any draw."""
        check_payer(payer)
        if payer is not None:
            # It counts every fit that it pays for, and promises something about all of them.
            if leaks:
                raise InvalidParameterError(
                    f"a fit that leaks {' and '.join(leaks)} cannot be paid for: pass public "
                    "bounds, and public classes to a classifier"
                )
            return
        fits = self._earlier_fits()
        fits.append(budget.mu)
        if len(fits) == 1:
            return
        warnings.warn(
            f"this is fit number {len(fits)} of this estimator and its clones: for records "
            f"that are in all of them they spend mu={shown_up(composed_mu(fits))} together, "
            "guarantee_ is that of one fit alone, and scores on held-out records are not private "
            "at all. Choose parameters on public data, or give each of k fits a part of the "
            "budget, Budget(epsilon, delta).split(k)[0].epsilon",
            RepeatedSpendingWarning,
            stacklevel=3,
        )

    def _earlier_fits(self) -> list[float]:
        """Return the mu of every fit in this process, of this estimator and of its clones."""
        fits: list[float] = self.__dict__.setdefault("_fits", [])
        return fits

    def __sklearn_clone__(self) -> Self:
        """Return a clone for scikit-learn, whose searches and ensembles fit clones."""
        # Shared, so that one of many fits is known from the others without a look at the data.
        fits, clone = self._earlier_fits(), super().__sklearn_clone__()
        clone.__dict__["_fits"] = fits
        return cast("Self", clone)
