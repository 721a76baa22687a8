"""The commands ``data status`` and ``data fetch``, without any server."""

import json
from pathlib import Path

import pytest

from matrixdp_experiments.command import main


def test_status(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MATRIXDP_DATA", str(tmp_path))
    (tmp_path / "mnist.npz").write_bytes(b"")
    (tmp_path / "adult.data").write_bytes(b"")
    assert main(["data", "status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["folder"] == str(tmp_path)
    assert found["datasets"]["mnist"] == {"present": True, "missing": []}
    assert found["datasets"]["adult"] == {"present": False, "missing": ["adult.test"]}
    assert main(["data", "status"]) == 0
    shown = capsys.readouterr().out
    assert "imdb.jsonl.xz" in shown
    assert "present" in shown


def test_no_folder(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MATRIXDP_DATA", raising=False)
    for command in (["status"], ["fetch", "mnist"]):
        assert main(["data", *command]) == 2
        assert "pass --folder, or set MATRIXDP_DATA" in capsys.readouterr().err


def test_unknown_names(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["data", "fetch", "mnist", "kora", "--folder", str(tmp_path)]) == 2
    assert "no data set 'kora'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["status", "fetch"])
def test_every_command_offers_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", command, "--help"]) == 0
    assert "--json" in capsys.readouterr().out
