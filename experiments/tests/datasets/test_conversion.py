"""From the files of the authors to the form that is read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.io import savemat

from matrixdp.errors import FileFormatError
from matrixdp_experiments.datasets.conversion.cora import CORA_FILES, convert_cora
from matrixdp_experiments.datasets.conversion.images import (
    CIFAR10_ARCHIVE,
    MNIST_FILES,
    SVHN_FILES,
    convert_cifar10,
    convert_mnist,
    convert_svhn,
)
from matrixdp_experiments.datasets.conversion.imdb import IMDB_ARCHIVE, convert_imdb
from matrixdp_experiments.datasets.imdb import load_imdb
from small_files import (
    array_opcodes,
    cifar_batch,
    csr_opcodes,
    graph_opcodes,
    idx,
    image_arrays,
    pickled,
    reviews,
    tar,
)


def stored(folder: Path, contents: dict[str, bytes]) -> dict[str, Path]:
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in contents}


def assert_holds(path: Path, arrays: dict[str, Any]) -> None:
    with np.load(path) as found:
        assert set(found.files) == set(arrays)
        for name, expected in arrays.items():
            assert found[name].dtype == expected.dtype
            np.testing.assert_array_equal(found[name], expected)


def test_mnist(tmp_path: Path) -> None:
    arrays = image_arrays(4, 3, (28, 28))
    files = stored(tmp_path, {file: idx(arrays[name]) for name, file in MNIST_FILES.items()})
    convert_mnist(files, tmp_path)
    assert_holds(tmp_path / "mnist.npz", arrays)


def test_broken_idx(tmp_path: Path) -> None:
    whole = idx(image_arrays(4, 3, (28, 28))["x_train"])
    for content in (whole[:-20], b"", idx(np.zeros(3, np.uint8))[:-9] + b"\0" * 9, b"\0" * 50):
        files = stored(tmp_path, dict.fromkeys(MNIST_FILES.values(), content))
        with pytest.raises(FileFormatError, match="train-images"):
            convert_mnist(files, tmp_path)


def test_cifar10(tmp_path: Path) -> None:
    arrays = image_arrays(10, 3, (32, 32, 3))
    members = {
        f"cifar-10-batches-bin/data_batch_{number + 1}.bin": cifar_batch(
            arrays["x_train"][2 * number : 2 * number + 2],
            arrays["y_train"][2 * number : 2 * number + 2],
        )
        for number in range(5)
    }
    test = {"cifar-10-batches-bin/test_batch.bin": cifar_batch(arrays["x_test"], arrays["y_test"])}
    convert_cifar10(stored(tmp_path, {CIFAR10_ARCHIVE: tar(members | test)}), tmp_path)
    assert_holds(tmp_path / "cifar10.npz", arrays)
    for broken in (tar(members), tar(members | dict.fromkeys(test, b"123")), b"no archive"):
        with pytest.raises(FileFormatError):
            convert_cifar10(stored(tmp_path, {CIFAR10_ARCHIVE: broken}), tmp_path)


def test_svhn(tmp_path: Path) -> None:
    arrays = image_arrays(5, 4, (32, 32, 3))
    arrays["y_train"][2] = 0
    files = {}
    for part, file in SVHN_FILES.items():
        labels = arrays[f"y_{part}"]
        images = arrays[f"x_{part}"].transpose(1, 2, 3, 0)
        # The digit 0 is 10 in these files.
        savemat(tmp_path / file, {"X": images, "y": np.where(labels, labels, 10)[:, np.newaxis]})
        files[file] = tmp_path / file
    convert_svhn(files, tmp_path)
    assert_holds(tmp_path / "svhn.npz", arrays)
    files[SVHN_FILES["test"]].write_bytes(b"no matrix")
    with pytest.raises(FileFormatError, match="test_32x32"):
        convert_svhn(files, tmp_path)


def planetoid(nodes: int, tests: int) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return files like those of Planetoid, and what they hold."""
    generator = np.random.default_rng(3)
    words = sparse.csr_array((generator.random((nodes, 20)) < 0.2).astype(np.float32))
    classes = generator.integers(0, 7, nodes)
    one_hot = np.eye(7, dtype=np.int32)[classes]
    known = nodes - tests
    order = known + generator.permutation(tests)
    graph = {node: [(node + 1) % nodes, node, (node + 1) % nodes] for node in range(nodes)}
    contents = {
        "y": array_opcodes(one_hot[:5]),
        "tx": csr_opcodes(words[order]),
        "ty": array_opcodes(one_hot[order]),
        "allx": csr_opcodes(words[:known]),
        "ally": array_opcodes(one_hot[:known]),
        "graph": graph_opcodes(graph),
    }
    files = {f"ind.cora.{part}": pickled(content) for part, content in contents.items()}
    files["ind.cora.test.index"] = "".join(f"{node}\n" for node in order).encode()
    numbers = np.arange(nodes)
    edges = [(0, 1), (0, nodes - 1), *((node, node + 1) for node in range(1, nodes - 1))]
    return files, {
        "x_indptr": words.indptr.astype(np.int32),
        "x_indices": words.indices.astype(np.int16),
        "x_data": words.data.astype(np.uint8),
        "x_shape": np.array([nodes, 20], np.int32),
        "edges": np.array(edges, np.int32),
        "y": classes.astype(np.uint8),
        "train_mask": numbers < 5,
        "val_mask": (numbers >= 5) & (numbers < 505),
        "test_mask": numbers >= known,
    }


def test_cora(tmp_path: Path) -> None:
    files, expected = planetoid(nodes=540, tests=20)
    assert set(files) == set(CORA_FILES)
    convert_cora(stored(tmp_path, files), tmp_path)
    assert_holds(tmp_path / "cora.npz", expected)


@pytest.mark.parametrize("part", CORA_FILES)
def test_broken_files_of_cora(tmp_path: Path, part: str) -> None:
    files, _ = planetoid(nodes=540, tests=20)
    files[part] = files[part][: len(files[part]) // 2] + b"x"
    with pytest.raises(FileFormatError, match=r"ind\.cora\."):
        convert_cora(stored(tmp_path, files), tmp_path)
    assert not (tmp_path / "cora.npz").exists()


def test_imdb(tmp_path: Path) -> None:
    kinds = {1: "pos", 0: "neg"}
    members = {
        f"aclImdb/{each['split']}/{kinds[each['label']]}/{each['id']}_{each['rating']}.txt": each[
            "text"
        ].encode()
        for each in reviews(12)[::-1]
    }
    # Reviews without a class, and everything else, are left out.
    others = {"aclImdb/train/unsup/0_0.txt": b"?", "aclImdb/README": b"?", "../pos/1_1.txt": b"?"}
    convert_imdb(stored(tmp_path, {IMDB_ARCHIVE: tar(members | others)}), tmp_path)
    data = load_imdb(tmp_path / "imdb.jsonl.xz", reviews=12)
    assert list(data.train_texts) == [each["text"] for each in reviews(12)[:24]]
    whole = tar(members)
    cut = whole[: len(whole) // 2]
    with pytest.raises(FileFormatError, match="aclImdb_v1"):
        convert_imdb(stored(tmp_path, {IMDB_ARCHIVE: cut}), tmp_path)
