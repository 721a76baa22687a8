"""Keys go where the data goes: not into graphs, schedulers, logs or the names of tasks."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "matrixdp.distributed", reason="arrays of Dask need the extra `dask`", exc_type=ImportError
)

import cloudpickle
import dask.array as da
from distributed import Client, LocalCluster

from matrixdp import IMGM, Budget, FrobeniusBall, InvalidParameterError
from matrixdp.distributed import keys as sealing
from matrixdp.distributed import release as releasing
from matrixdp.distributed import running
from matrixdp.distributed.keys import SealedSecret, key_file_for
from matrixdp.errors import KeyStateError
from matrixdp.ledger.key_file import KeyFile
from matrixdp.mechanisms.noisy_block import BlockNoise
from matrixdp.noise import ReleaseKey
from matrixdp.noise.keys.parts import secret_of_part

BALL = IMGM(FrobeniusBall(1.0, "replace"), Budget(1.0, 1e-5))
ARRAY = da.zeros((40, 6), chunks=(10, 6))


def secrets_of(secret: bytes) -> list[bytes]:
    """Return the key of a release, and all that follows from it and takes noise away."""
    context = BlockNoise(BALL.proof, (40, 6), "float64").context
    with ReleaseKey.from_bytes(secret).bind(context) as stream:
        exported = stream.export_secret()
        ranges = bytes(stream.range_key(0))
    return [secret, secret_of_part(secret, "tags"), exported[:32], exported[32:64], ranges]


def found_in(haystack: bytes, secrets: list[bytes]) -> list[bytes]:
    """Return the secrets that are in it, as bytes or as text."""
    text = repr(haystack).encode()
    return [
        one
        for one in secrets
        if any(form in pile for form in (one, one.hex().encode()) for pile in (haystack, text))
    ]


def test_the_search_finds_what_is_there() -> None:
    planted = bytes(range(32))
    assert found_in(b"..." + planted, [planted]) == [planted]
    assert found_in(pickle.dumps({"key": planted.hex()}), [planted]) == [planted]
    assert found_in(b"nothing", [planted]) == []


def scheduler_state(dask_scheduler: Any) -> bytes:
    """Return all that a scheduler knows, as bytes."""
    tasks = {key: task.run_spec for key, task in dask_scheduler.tasks.items()}
    rest = [dask_scheduler.plugins, dask_scheduler.worker_plugins, dask_scheduler.get_logs()]
    events = dict(dask_scheduler.get_events())
    return b"\0".join([cloudpickle.dumps(tasks), repr(rest).encode(), repr(events).encode()])


def test_no_key_is_in_the_graph_or_on_the_scheduler(
    client: Client,
    cluster: LocalCluster,
    tmp_path: Path,
    known_key: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key_file = tmp_path / "study.keys"
    kek = bytes.fromhex(KeyFile.create(key_file).path.read_text().split()[1])
    hidden = [kek, *secrets_of(known_key)]
    graphs: list[bytes] = []
    states: list[bytes] = []
    run_chunks = running.run_chunks

    def spied(answers: da.Array, advance: Any) -> Any:
        graphs.append(cloudpickle.dumps(answers.dask))
        return run_chunks(answers, advance)

    monkeypatch.setattr(releasing, "run_chunks", spied)
    releasing.release_to(
        *(BALL, tmp_path / "out.zarr", ARRAY),
        keys=key_file,
        # Amid the run, when the scheduler knows all tasks.
        advance=lambda _: states.append(client.run_on_scheduler(scheduler_state)),
    )
    logs = repr([client.get_worker_logs(), client.get_scheduler_logs(), cluster.get_logs()])
    assert (len(graphs), len(states)) == (2, 8)
    for haystack in [*graphs, *states, logs.encode()]:
        assert found_in(haystack, hidden) == []
    # Where it should be seen, sealed, it is: the search looks in the right places.
    assert all(str(key_file).encode() in haystack for haystack in [*graphs, states[0], states[4]])


def test_the_file_for_one_machine_is_gone_afterwards(tmp_path: Path) -> None:
    with key_file_for(None) as made:
        assert made.path.parent.stat().st_mode & 0o077 == 0
        assert made.path.exists()
    assert not made.path.parent.exists()
    named = tmp_path / "study.keys"
    with key_file_for(named) as kept:
        assert kept.path == named
    assert named.exists()


def test_a_secret_is_opened_for_its_purpose_alone(tmp_path: Path) -> None:
    with key_file_for(None) as keys:
        sealed = SealedSecret.of(b"secret" * 4, b"noise", keys)
        assert sealed.opened() == b"secret" * 4
        assert b"secret" not in pickle.dumps(sealed)
        for wrong in (
            SealedSecret(sealed.sealed, b"tags", sealed.path),
            SealedSecret(sealed.sealed, b"noise", str(KeyFile.create(tmp_path / "k").path)),
            SealedSecret(sealed.sealed, b"noise", str(tmp_path / "none")),
        ):
            with pytest.raises(KeyStateError, match="cannot be read by a worker"):
                wrong.opened()


def test_workers_that_cannot_read_the_key_file_are_noticed_before_paying(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.submit(np.zeros, 3).result().shape == (3,)  # workers are there

    def elsewhere(_path: str) -> None:
        return None

    monkeypatch.setattr(sealing, "_fingerprint", elsewhere)
    with pytest.raises(InvalidParameterError, match="mount one key file"):
        releasing.release_to(BALL, tmp_path / "out.zarr", ARRAY, check=False)
    assert list(tmp_path.iterdir()) == []
