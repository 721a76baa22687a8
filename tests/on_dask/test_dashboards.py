"""Pages of a scheduler and of workers, and what clients may ask them, while a release is made."""

import urllib.request
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "matrixdp.distributed", reason="arrays of Dask need the extra `dask`", exc_type=ImportError
)

import dask.array as da
from distributed import Client
from tornado.escape import url_escape

from matrixdp import IMGM, Budget, FrobeniusBall
from matrixdp.distributed import release as releasing
from matrixdp.ledger.key_file import KeyFile
from on_dask.test_secrets import found_in, secrets_of

BALL = IMGM(FrobeniusBall(1.0, "replace"), Budget(1.0, 1e-5))
VALUE = 8675309.0


def page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
        return bytes(answer.read()).decode()


def pages(client: Client, scheduler: int) -> str:
    """Return the pages of a cluster, one after the other."""
    info = client.scheduler_info(n_workers=-1)["workers"]
    tasks: list[str] = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))
    seen = [page(scheduler, f"info/main/{name}.html") for name in ("workers", "exceptions", "logs")]
    seen.append(page(scheduler, "json/counts.json"))
    for worker in map(url_escape, info):
        seen += [page(scheduler, f"info/{kind}/{worker}.html") for kind in ("worker", "logs")]
        seen.append(page(scheduler, f"info/call-stacks/{worker}.html"))
    for task in tasks:
        seen.append(page(scheduler, f"info/task/{url_escape(str(task), plus=False)}.html"))
    seen += [page(each["services"]["dashboard"], "metrics") for each in info.values()]
    return "\n".join([*seen, page(scheduler, "metrics")])


def asked(client: Client) -> str:
    """Return what a client shows of the work of others."""
    stories = client.run(lambda dask_worker: list(map(str, dask_worker.state.stimulus_log)))
    seen = [client.get_task_stream(), client.profile(), client.scheduler_info(n_workers=-1)]
    return repr([seen, stories, client.get_events(), client.processing()])


def test_pages_show_neither_keys_nor_numbers(
    client: Client, cluster: Any, tmp_path: Path, known_key: bytes
) -> None:
    key_file = tmp_path / "study.keys"
    kek = bytes.fromhex(KeyFile.create(key_file).path.read_text().split()[1])
    array = da.full((40, 6), VALUE, chunks=(10, 6))
    port = cluster.scheduler.services["dashboard"].port
    client.get_task_stream()  # from now on
    seen: list[str] = []
    done = count(1)

    def look(_chunks: int) -> None:
        if next(done) % 4 == 2:  # amid the check, and amid the noise
            seen.append(pages(client, port) + asked(client))

    releasing.release_to(
        *(BALL, tmp_path / "out.zarr", array),
        keys=key_file,
        advance=look,
    )
    assert len(seen) == 2
    for each in seen:
        assert found_in(each.encode(), [kek, *secrets_of(known_key)]) == []
        assert "86753" not in each
    # Tasks are there, by names that say nothing.
    assert all("matrixdp-" in each for each in seen)
