"""Learning from scenes: in pieces or at once, and files of weights."""

from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from matrixdp.errors import FileFormatError
from matrixdp_experiments.procedural import pretraining
from matrixdp_experiments.procedural.networks import NETWORKS, Body
from matrixdp_experiments.procedural.pretraining import (
    Pretraining,
    contrast,
    digest_of,
    pretrained,
    read_body,
    write_body,
)

CPU = torch.device("cpu")
PLAN = Pretraining("tiny", 3, steps=3, pairs=2, textures=2, warm_up=2, hidden=8, outputs=4)


def learn(checkpoint: Path, seconds: float) -> Body | None:
    return pretrained(PLAN, CPU, checkpoint=checkpoint, seconds=seconds, progress=lambda _: None)


def test_pieces_give_what_one_run_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = learn(tmp_path / "whole", 1e9)
    ticks = count()
    clock = SimpleNamespace(monotonic=lambda: float(next(ticks)))
    monkeypatch.setattr(pretraining, "time", clock)
    pieces = 0
    body = None
    while body is None:
        body = learn(tmp_path / "pieces", 1.5)  # one step for each piece
        pieces += 1
    assert pieces == 3
    assert whole is not None
    for name, part in whole.state_dict().items():
        assert torch.equal(part, body.state_dict()[name]), name


def test_weights_come_back_and_have_a_digest(tmp_path: Path) -> None:
    torch.manual_seed(0)
    body = Body("tiny")
    paths = [tmp_path / "a.pt", tmp_path / "b.pt"]
    for path in paths:
        write_body(path, body, PLAN)
    assert digest_of(paths[0]) == digest_of(paths[1])
    back, plan = read_body(paths[0])
    assert plan == PLAN
    for name, part in body.state_dict().items():
        assert torch.equal(part.bfloat16().float(), back.state_dict()[name])


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"weights": {}}, path)
    with pytest.raises(FileFormatError, match="record pretrain"):
        read_body(path)


def test_partners_are_found_better_than_strangers() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(16, 8, generator=generator), dim=1)
    assert float(contrast(rows.repeat(2, 1), 0.15)) < float(
        contrast(torch.cat([rows, -rows]), 0.15)
    )


def test_the_wide_network_has_its_size() -> None:
    assert sum(part.numel() for part in Body("wide").parameters()) == 10_403_904
    maps = Body("p2")(torch.zeros(1, 3, 32, 32))
    assert [part.shape[1] for part in maps] == [16, 64, 64, 128, 128, 256, 256]
    assert set(NETWORKS) == {"wide", "p2", "tiny"}
