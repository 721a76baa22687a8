"""Queries on a real cluster: processes, which log nothing of a record, and may be killed."""

import importlib
import logging
import os
import signal
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import matrixdp as mdp
from matrixdp.queries import Gram, PublicBounds, SampleCovariance, Sum

distributed = pytest.importorskip("distributed", reason="the extra `dask`")
arrays = importlib.import_module("dask.array")
on_workers = importlib.import_module("matrixdp.distributed").on_workers

NUMBERS = np.random.default_rng(5).normal(size=(4000, 8))
BOUNDS = PublicBounds(8, norm=2.0)


def test_the_bits_of_one_machine(client: Any) -> None:
    records = arrays.from_array(NUMBERS, chunks=(300, 5))
    for summed in (Sum(BOUNDS, "replace"), SampleCovariance(BOUNDS, "add-remove", 100)):
        np.testing.assert_array_equal(summed.evaluate(records), summed.evaluate(NUMBERS))
    shares: list[float] = []
    told = replace(on_workers(records), progress=lambda: nullcontext(shares.append))
    np.testing.assert_array_equal(
        Gram(BOUNDS, "replace").evaluate(told), Gram(BOUNDS, "replace").evaluate(NUMBERS)
    )
    assert sum(shares) == pytest.approx(1.0)
    assert client.status == "running"


def _logs(client: Any) -> str:
    return str(client.get_worker_logs()) + str(client.get_scheduler_logs())


def test_errors_are_not_logged_and_names_of_tasks_hold_no_value(
    client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(block: Any) -> Any:
        raise ValueError(f"8675309: {block}")

    # Other tests of this cluster have tasks that fail on purpose.
    failed_before = _logs(client).count("Compute Failed")
    keys: list[str] = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))
    records = on_workers(arrays.full((1000, 8), 8675309.0, chunks=(100, 8))).mapped(failing)
    with caplog.at_level(logging.DEBUG), pytest.raises(mdp.InvalidParameterError) as refusal:
        Gram(BOUNDS, "replace").evaluate(records)
    assert "ValueError" in str(refusal.value)
    logs = _logs(client)
    keys += client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))
    assert "8675309" not in str(refusal.value) + logs + caplog.text + str(keys)
    assert logs.count("Compute Failed") == failed_before


@pytest.mark.thorough
def test_a_killed_worker_changes_no_bit(client: Any) -> None:
    def slow(block: Any) -> Any:
        time.sleep(0.05)
        return block

    records = on_workers(arrays.from_array(NUMBERS, chunks=(40, 8))).mapped(slow)
    query, found = Gram(BOUNDS, "replace"), list[np.ndarray]()
    computing = threading.Thread(target=lambda: found.append(query.evaluate(records)))
    computing.start()
    for _ in range(2):
        time.sleep(1.0)
        os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)
    computing.join()
    np.testing.assert_array_equal(found[0], query.evaluate(NUMBERS))
