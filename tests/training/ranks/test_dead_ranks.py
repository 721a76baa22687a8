"""Ranks that are killed or stopped: a step is lost, and neither a key nor a lot comes back."""

import os
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

from training.ranks.running import ended, run, started

pytestmark = pytest.mark.thorough
KEY = 32


def keys_of(folder: Path, rank: int) -> list[bytes]:
    """Return the keys that a rank has drawn noise by, in all of its lives."""
    path = folder / f"keys-{rank}"
    content = path.read_bytes() if path.exists() else b""
    return [content[start : start + KEY] for start in range(0, len(content), KEY)]


def steps_in(folder: Path) -> int:
    return len((folder / "spent").read_bytes().splitlines()) - 1


@pytest.mark.parametrize(
    ("at", "victim"),
    [("spending", 0), *((at, rank) for at in ("sum", "noise", "sending") for rank in (0, 1))],
)
def test_a_killed_rank_costs_one_step(tmp_path: Path, at: str, victim: int) -> None:
    processes = started("dying", 2, tmp_path, at, str(victim))
    said = ended(processes)
    codes = [process.returncode for process in processes]
    assert codes[victim] == 9, said
    assert codes[1 - victim] not in (0, 9), said
    assert steps_in(tmp_path) == 2  # step 0, and step 1 in which it died
    # Nobody is bound to the number of ranks, since records are divided anew.
    found = run("dying", 3, tmp_path, at, "none")
    for rank in found:
        assert rank["steps"] == [2, 3]
        assert rank["spent"] == 4
        assert rank["weights"].equal(found[0]["weights"])
    assert steps_in(tmp_path) == 4
    check_keys(tmp_path, ranks=3)


def check_keys(folder: Path, ranks: int) -> None:
    """Check that every key was used for one step, by each rank at most once for its shard."""
    keys = [keys_of(folder, rank) for rank in range(ranks)]
    for own in keys:
        assert len(own) == len(set(own)) <= 4
    assert 3 <= len({key for own in keys for key in own}) <= 4


def test_a_rank_that_sleeps_for_too_long_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes up in the middle of a step, after the others have given that up."""
    monkeypatch.setenv("RANK_SECONDS", "20")
    processes = started("dying", 2, tmp_path, "stopped", "1")
    sleeper = processes[1]
    try:
        processes[0].communicate(timeout=200)
        assert processes[0].returncode != 0
        assert sleeper.poll() is None
        before = steps_in(tmp_path)
        os.kill(sleeper.pid, signal.SIGCONT)
        deadline = time.monotonic() + 60
        while sleeper.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert sleeper.returncode not in (0, None)
        assert steps_in(tmp_path) == before == 2
    finally:
        ended(processes)
    assert [rank["steps"] for rank in run("dying", 2, tmp_path, "stopped", "none")] == [[2, 3]] * 2
    check_keys(tmp_path, ranks=2)
