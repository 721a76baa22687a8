"""High-water marks: what a client has seen of a ledger, so that an older copy of it is noticed.

Whoever can change a ledger can also change the whole chain, or put back a copy of last month. Every
client therefore keeps the last entry that it saw, beside its key file.
"""

import json
import os
import secrets
import warnings
from pathlib import Path
from typing import Any

from matrixdp.errors import FileFormatError, LedgerError
from matrixdp.files.publishing.locks import lock
from matrixdp.ledger.stores.store import Rows

__all__ = ["HighWaterMark"]


class HighWaterMark:
    """The last entry of a ledger that the clients of one key file have seen.

    Parameters
    ----------
    path : Path
        A file of JSON; made when something is seen.
    address : str
        Of the ledger. A file holds the marks of several.
    """

    def __init__(self, path: Path, address: str) -> None:
        self._path = path
        self._address = address

    def check(self, rows: Rows) -> None:
        """Raise unless the rows hold all that was seen.

        Raises
        ------
        LedgerError
            If they are an older copy, another ledger, or were altered.
        """
        seen = self._read().get(self._address)
        if seen is None:
            return
        ((ledger, sequence),) = rows.execute("SELECT ledger, sequence FROM head WHERE one = 1")
        if ledger != seen["ledger"]:
            raise LedgerError(
                f"{self._address} holds another ledger than before: {ledger} instead of "
                f"{seen['ledger']}. Nothing was paid. Bring the former one back; if the change is "
                f"meant, remove {self._path}"
            )
        found = rows.execute(
            "SELECT digest FROM entries WHERE sequence = :sequence", sequence=seen["sequence"]
        )
        if sequence < seen["sequence"]:
            raise LedgerError(
                f"{self._address} has {sequence} entries, and {seen['sequence']} were seen: it is "
                "an older copy, which has forgotten payments. Nothing was paid. Bring the newer "
                f"one back; docs/ledger.md says what to do if it is lost"
            )
        if found != [(seen["digest"],)]:
            raise LedgerError(
                f"{self._address} was altered: entry {seen['sequence']} is not the one that was "
                "seen. Nothing was paid. Run `matrixdp ledger verify`"
            )

    def advance(self, ledger: str, sequence: int, digest: str) -> None:
        """Remember an entry, unless a later one is known; warn if that is impossible."""
        try:
            with self._path.with_name(self._path.name + ".lock").open("ab") as queue:
                lock(queue)
                marks = self._read()
                if marks.get(self._address, {"sequence": -1})["sequence"] >= sequence:
                    return
                marks[self._address] = {"ledger": ledger, "sequence": sequence, "digest": digest}
                # Not forced to the disk: a mark that a power cut takes back is only an older one.
                fresh = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
                fresh.write_text(json.dumps(marks, indent=2), encoding="utf-8")
                os.replace(fresh, self._path)  # noqa: PTH105 - of two paths, in one step
        except OSError as error:
            # The payment stands: a release that is not made because of this would be lost.
            warnings.warn(
                f"{self._path} cannot be written ({error.strerror}): an older copy of the ledger "
                "would not be noticed",
                RuntimeWarning,
                stacklevel=2,
            )

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            marks = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (ValueError, OSError) as error:
            raise FileFormatError(
                f"{self._path} is not a file of high-water marks: remove it after you have "
                "verified the ledger"
            ) from error
        return marks  # type: ignore[no-any-return]
