"""Accounts that were computed once and are read from a file afterwards.

Accounting and training are apart. A machine that only trains needs no accountant, and all machines
train with the same multipliers to the last digit, so that equal cells are one run everywhere.
"""

from pathlib import Path

import msgspec

from matrixdp.errors import CalibrationError
from matrixdp_experiments.gradients.accounts import (
    MECHANISMS,
    Account,
    Promise,
    account,
    matrix_shapes,
)
from matrixdp_experiments.gradients.settings import REFERENCE_EPSILON, Setting
from matrixdp_experiments.grid.json_files import alone_with, read_json, write_json
from matrixdp_experiments.grid.runs import DELTA, Split

__all__ = ["AccountBook", "promise_of"]

_REFERENCE = "imgm-pld"


class AccountBook:
    """The accounts in ``accounts.json`` of a folder of results; what is missing is computed.

    Parameters
    ----------
    folder : Path
        Where the file is, or will be made.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "accounts.json"
        self._accounts = self._read()

    def account(self, mechanism: str, promise: Promise) -> Account:
        """Return an account, from the file if it is there."""
        key = _key(mechanism, promise)
        if key not in self._accounts:
            # At once: an account may take seconds, and the next one may be interrupted.
            self._keep(key, account(mechanism, promise))
        return self._accounts[key]

    def promised(self, mechanism: str, setting: Setting) -> list[float]:
        """Return the epsilons that accounts of a mechanism are kept for, for its final runs."""
        epsilons = {
            one.promise.epsilon for one in self._accounts.values() if one.mechanism == mechanism
        }
        # By the whole promise, as it does not say which data set it was for.
        return sorted(
            epsilon
            for epsilon in epsilons
            if _key(mechanism, promise_of(setting, "test", mechanism, epsilon)) in self._accounts
        )

    def reference_multiplier(self, setting: Setting, split: Split) -> float:
        """Return the multiplier that hyper-parameters are chosen at: IMGM, PLD, epsilon 1."""
        found = self.account(_REFERENCE, promise_of(setting, split, _REFERENCE, REFERENCE_EPSILON))
        if found.noise_multiplier is None:
            raise CalibrationError(f"the reference cell has no noise multiplier: {found.refusal}")
        return found.noise_multiplier

    def _keep(self, key: bytes, found: Account) -> None:
        with alone_with(self._path):
            # Read again: what another process kept meanwhile stays, so that all train with it.
            self._accounts = self._read()
            self._accounts.setdefault(key, found)
            write_json(self._path, list(self._accounts.values()))

    def _read(self) -> dict[bytes, Account]:
        found = read_json(self._path, list[Account]) if self._path.exists() else []
        return {_key(one.mechanism, one.promise): one for one in found}


def promise_of(setting: Setting, split: Split, mechanism: str, epsilon: float) -> Promise:
    """Return what a mechanism has to promise on a data set."""
    return Promise(
        epsilon=epsilon,
        delta=DELTA,
        sampling_rate=setting.rate_of(split),
        steps=setting.steps_of(split),
        lot_size=setting.lot_size,
        # Only where they matter: the accounts of the others then stay when a model changes.
        matrices=matrix_shapes(setting.name) if MECHANISMS[mechanism].family == "mvg" else {},
    )


def _key(mechanism: str, promise: Promise) -> bytes:
    # The whole promise: after a change of a setting or a model an old account no longer matches.
    return mechanism.encode() + b" " + msgspec.json.encode(promise, order="sorted")
