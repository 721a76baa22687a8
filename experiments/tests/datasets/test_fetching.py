"""Fetching from a server on this machine: right files, wrong ones, and ones that are cut short."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from matrixdp.errors import FileFormatError, StorageError
from matrixdp_experiments.command import main
from matrixdp_experiments.datasets import fetch_dataset
from matrixdp_experiments.datasets.conversion.images import MNIST_FILES, convert_mnist
from matrixdp_experiments.datasets.images import ImageFormat, read_images
from matrixdp_experiments.datasets.sources import SOURCES, Source
from small_files import PERSON, idx, image_arrays

SMALL = ImageFormat("mnist", (28, 28), 6, 4, 2, final_run_has_all=False)
ARRAYS = image_arrays(6, 4, (28, 28))
FILES = {file: idx(ARRAYS[name]) for name, file in MNIST_FILES.items()}


class Server(ThreadingHTTPServer):
    """Serves files from memory and remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cut_short: set[str] = set()
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.removeprefix("/")
        self.server.asked.append(name)
        if name not in self.server.files:
            self.send_error(404)
            return
        content = self.server.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        # A connection that breaks: less comes than was announced.
        self.wfile.write(content[: len(content) // 2] if name in self.server.cut_short else content)

    def log_message(self, *_: Any) -> None:
        """Say nothing on standard error, which tests read."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    # Where tests run there may be a proxy, which would not reach this machine.
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as running:
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def checksums(files: Mapping[str, bytes]) -> dict[str, str | None]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


@pytest.fixture
def mnist(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Let a small MNIST come from the server."""
    server.files = dict(FILES)
    small = Source(
        server.address, checksums(FILES), convert_mnist, lambda path: read_images(path, SMALL)
    )
    monkeypatch.setitem(SOURCES, "mnist", small)
    return server


def test_right_files(mnist: Server, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert fetch_dataset("mnist", folder)
    assert [path.name for path in folder.iterdir()] == ["mnist.npz"]
    with np.load(folder / "mnist.npz") as found:
        np.testing.assert_array_equal(found["x_train"], ARRAYS["x_train"])
    assert sorted(mnist.asked) == sorted(FILES)


def test_a_second_fetch_does_nothing(mnist: Server, tmp_path: Path) -> None:
    fetch_dataset("mnist", tmp_path)
    before = (tmp_path / "mnist.npz").stat()
    mnist.asked.clear()
    assert not fetch_dataset("mnist", tmp_path)
    assert mnist.asked == []
    assert (tmp_path / "mnist.npz").stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("name", FILES)
def test_another_file_is_refused(mnist: Server, tmp_path: Path, name: str) -> None:
    mnist.files[name] += b"\0"
    with pytest.raises(FileFormatError, match=f"{name} was cut short or is another file"):
        fetch_dataset("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_cut_short(mnist: Server, tmp_path: Path) -> None:
    name = "t10k-images-idx3-ubyte.gz"
    mnist.cut_short.add(name)
    with pytest.raises((StorageError, FileFormatError), match=name):
        fetch_dataset("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []
    # A server that does not know better announces what it sends.
    mnist.cut_short.clear()
    mnist.files[name] = FILES[name][:-30]
    with pytest.raises(FileFormatError, match="checksum"):
        fetch_dataset("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there(mnist: Server, tmp_path: Path) -> None:
    del mnist.files["train-labels-idx1-ubyte.gz"]
    with pytest.raises(StorageError, match=r"train-labels.*could not be fetched"):
        fetch_dataset("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_were_made_for_nothing_go_again(mnist: Server, tmp_path: Path) -> None:
    mnist.files.clear()
    kept = tmp_path / "kept"
    kept.mkdir()
    for folder in (tmp_path / "new" / "folder", kept, kept / "new"):
        with pytest.raises(StorageError, match="nothing was written"):
            fetch_dataset("mnist", folder)
    assert list(tmp_path.rglob("*")) == [kept]


def test_no_server(mnist: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOURCES["mnist"]
    # Nothing listens on this port, which only an administrator could open.
    nowhere = Source("http://127.0.0.1:1/", source.downloads, source.convert, source.check)
    monkeypatch.setitem(SOURCES, "mnist", nowhere)
    with pytest.raises(StorageError, match="could not be fetched"):
        fetch_dataset("mnist", tmp_path)
    assert mnist.asked == []
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing(mnist: Server, tmp_path: Path) -> None:
    def interrupt(_: str) -> None:
        if mnist.asked:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_dataset("mnist", tmp_path, report=interrupt)
    assert len(mnist.asked) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_conversion_leaves_nothing(
    mnist: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Mapping[str, Path], folder: Path) -> None:
        (folder / "mnist.npz").write_bytes(b"half")
        raise KeyboardInterrupt

    source = SOURCES["mnist"]
    half = Source(source.address, source.downloads, interrupted, source.check)
    monkeypatch.setitem(SOURCES, "mnist", half)
    with pytest.raises(KeyboardInterrupt):
        fetch_dataset("mnist", tmp_path)
    assert len(mnist.asked) == 4
    assert list(tmp_path.iterdir()) == []


def test_what_was_converted_is_checked(
    mnist: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = idx(ARRAYS["y_train"][:-1])
    files = FILES | {"train-labels-idx1-ubyte.gz": other}
    mnist.files = files
    source = SOURCES["mnist"]
    fitting = Source(source.address, checksums(files), source.convert, source.check)
    monkeypatch.setitem(SOURCES, "mnist", fitting)
    with pytest.raises(FileFormatError, match="'y_train'"):
        fetch_dataset("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_that_exist_are_left_alone(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files = {"adult.data": PERSON.encode(), "adult.test": PERSON.encode()}
    source = SOURCES["adult"]
    small = Source(server.address, checksums(server.files), source.convert, lambda *_: None)
    monkeypatch.setitem(SOURCES, "adult", small)
    (tmp_path / "adult.data").write_text("mine")
    assert fetch_dataset("adult", tmp_path)
    assert (tmp_path / "adult.data").read_text() == "mine"
    assert (tmp_path / "adult.test").read_text() == PERSON
    assert len(list(tmp_path.iterdir())) == 2


def test_the_command(mnist: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["data", "fetch", "mnist", "--folder", str(tmp_path)]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert shown.out == "mnist: fetched\n"
    assert f"fetching {mnist.address}train-images-idx3-ubyte.gz" in shown.err
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"folder": str(tmp_path), "fetched": {"mnist": False}}


def test_the_command_says_what_failed(
    mnist: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mnist.files.clear()
    assert main(["data", "fetch", "mnist", "--folder", str(tmp_path)]) == 2
    assert "could not be fetched (HTTPError)" in capsys.readouterr().err
