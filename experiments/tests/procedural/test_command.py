"""From scenes to a release by the commands, with a network and images of no use."""

import json
from pathlib import Path

import pytest
import torch

from matrixdp_experiments.command import main
from matrixdp_experiments.procedural import features, neighbours, work

IMAGES = 6


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    made = torch.randint(256, (IMAGES, 3, 32, 32), generator=generator).to(torch.uint8)
    labels = torch.arange(IMAGES) % 10
    monkeypatch.setattr(work, "load_images", lambda _: (made, labels))
    monkeypatch.setattr(work, "crafted_images", lambda: neighbours.crafted_images()[:2])


def run(*words: str) -> None:
    assert main(["procedural", *words]) == 0


@pytest.mark.usefixtures("images")
def test_commands_go_from_scenes_to_a_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights, rows, out = (str(tmp_path / name) for name in ("tiny.pt", "rows", "release.json"))
    tiny = ("--pairs", "2", "--textures", "2")
    run("pretrain", "--network", "tiny", "--steps", "1", "--out", weights, *tiny)
    digest = json.loads(capsys.readouterr().out)["digest"]
    run("features", "--weights", weights, "--rows", rows, "--synthetic", "4")
    made = json.loads(capsys.readouterr().out)
    assert made["networks"] == [digest]
    assert made["rows_changed_without_the_first"] == 0
    assert made["rows_compared"] == IMAGES - 1
    run("choose", "--rows", rows, "--steps", "3", "--folds", "2")
    assert len(json.loads(capsys.readouterr().out)["held_out"]) == 2
    run("release", "--rows", rows, "--out", out, "--steps", "5")
    released = json.loads(Path(out).read_text())
    assert released["releases"] == 6
    assert 0.0 <= released["mu"] - released["spent"] <= 1e-12 * released["mu"]
    assert 0.99 < released["largest_move"] <= 1.0
    assert "test_accuracy" not in released


def test_bad_input_has_an_exit_code(tmp_path: Path) -> None:
    words = ["pretrain", "--network", "huge", "--steps", "1", "--out", str(tmp_path / "x.pt")]
    assert main(["procedural", *words]) == 2
    assert main(["procedural", "choose", "--rows", str(tmp_path)]) == 2


def test_a_second_epsilon_spends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["release", "--rows", "rows", "--out", "out.json", "--epsilon", "0.1", "--epsilon", "5"]
    assert main(["procedural", *words]) == 2
    assert "'--epsilon' is given more than once" in capsys.readouterr().err


def test_synthetic_images_come_from_their_seed() -> None:
    setting = features.FeatureSetting(seed=1, images=2, textures=2)
    device = torch.device("cpu")
    first = features.synthetic_images(setting, device)
    assert first.shape == (2, 3, 32, 32)
    assert torch.equal(first, features.synthetic_images(setting, device))
