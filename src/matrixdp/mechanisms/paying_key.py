"""A release key that pays for its release at the last moment at which it can be refused.

Noise is drawn as soon as a key is bound, and a key is bound only after the input has passed every
check. So a payment made while binding comes after all checks and before the first random bit,
wherever on the way the checks are made.
"""

from matrixdp.errors import InvalidParameterError
from matrixdp.noise import ReleaseKey
from matrixdp.noise.context import NoiseContext
from matrixdp.noise.keys import NoiseStream
from matrixdp.privacy.filter import Filter
from matrixdp.privacy.guarantee import Guarantee

__all__ = ["PayingKey"]


class PayingKey(ReleaseKey):
    """Wraps a key: `bind` first spends a guarantee from a filter, then binds the wrapped key.

    Parameters
    ----------
    key : ReleaseKey
        The key whose stream makes the noise; it is not spent if the payment is refused.
    purse : Filter
        What pays.
    guarantee : Guarantee
        What the release costs.
    """

    __slots__ = ("_guarantee", "_key", "_purse")

    # The wrapped key holds the secret: this one must not hold another, so no super().__init__.
    def __init__(self, key: ReleaseKey, purse: Filter, guarantee: Guarantee) -> None:
        if not isinstance(purse, Filter):
            raise InvalidParameterError(
                f"filter is a {type(purse).__name__}: pass Filter(budget, neighbouring=...), or "
                "nothing"
            )
        self._key = key
        self._purse = purse
        self._guarantee = guarantee

    def bind(self, context: NoiseContext) -> NoiseStream:
        """Pay, then spend the wrapped key on a context."""
        # A key that cannot be bound must not cost anything. If another thread binds it right after
        # this check, a payment is lost, which is the safe side.
        self._key.check_unbound()
        self._purse.spend(self._guarantee)
        return self._key.bind(context)

    def check_unbound(self) -> None:
        """Raise KeyStateError unless the wrapped key can be bound in this process."""
        self._key.check_unbound()

    def close(self) -> None:
        """Overwrite the wrapped key."""
        self._key.close()

    def __repr__(self) -> str:
        """Say whether the wrapped key is bound, never what it is."""
        return f"PayingKey({self._key!r})"
