"""Replies of commands as JSON."""

import json

import pytest

from matrixdp.cli.main import main

__all__ = ["answer"]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, object]:
    """Run a command with ``--json``, and return what it printed."""
    assert main([*arguments, "--json"]) == code
    reply = json.loads(capsys.readouterr().out)
    assert isinstance(reply, dict)
    return reply
