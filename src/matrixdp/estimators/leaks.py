"""What is taken from the data because no public value was given, and so is not protected."""

import warnings

__all__ = ["PrivacyLeakWarning", "warn_of_leak"]


class PrivacyLeakWarning(UserWarning):
    """Something was taken from the data without privacy; the message names it."""


def warn_of_leak(leak: str, parameter: str) -> None:
    """Warn that something leaks, and say which parameter prevents it.

    Parameters
    ----------
    leak : str
        What is taken from the data, in words; never its value.
    parameter : str
        What to pass instead.
    """
    warnings.warn(
        f"{leak} is taken from the data and leaks, so that guarantee_ is None: pass {parameter}, "
        "chosen without looking at the data",
        PrivacyLeakWarning,
        stacklevel=4,
    )
