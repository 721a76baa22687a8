"""Saved strategies: read back whole, or refused."""

import hashlib
import io
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from matrixdp import InvalidParameterError
from matrixdp.cli.main import main
from matrixdp.errors import FileFormatError
from matrixdp.files.publishing.strategies import load_strategy, save_strategy
from matrixdp.workloads import (
    Certificate,
    OptimalStrategy,
    Prefix,
    Product,
    Ranges,
    StackedStrategy,
    Strategy,
    Total,
    Union,
    marginals,
    optimal_strategy,
)
from matrixdp.workloads.unions import search as unions


def arrays_of(strategy: Strategy) -> list[np.ndarray]:
    if isinstance(strategy, StackedStrategy):
        return [array for part in strategy.parts for array in arrays_of(part)]
    return list(strategy.named_arrays().values())


@pytest.mark.parametrize(
    "workload", [Prefix(9), Product([Prefix(3), Prefix(4)]), marginals([2, 3], [(0,), (1,)])]
)
def test_round_trip(workload: Prefix, tmp_path: Path) -> None:
    best = optimal_strategy(workload, neighbouring="add-remove")
    save_strategy(best, tmp_path / "s.npz")
    saved = load_strategy(tmp_path / "s.npz")
    assert saved.certificate == best.certificate
    assert (saved.neighbouring, saved.workload) == ("add-remove", repr(workload))
    for one, other in zip(arrays_of(saved.strategy), arrays_of(best.strategy), strict=True):
        np.testing.assert_array_equal(one, other)
    assert saved.strategy.sensitivity("replace") == best.strategy.sensitivity("replace")
    with pytest.raises(InvalidParameterError, match="exists"):
        save_strategy(best, tmp_path / "s.npz")
    save_strategy(best, tmp_path / "s.npz", force=True)


def test_stacks_are_read_back_whole(tmp_path: Path) -> None:
    union = Union([Product([Prefix(5), Total(6)]), Product([Total(5), Ranges(6)])])
    stack = unions.strategies_for_union(union, "add-remove").best[-1]
    best = OptimalStrategy(union, stack, "add-remove", Certificate(3.0, 2.0))
    save_strategy(best, tmp_path / "s.npz")
    saved = load_strategy(tmp_path / "s.npz")
    assert isinstance(best.strategy, StackedStrategy)
    assert isinstance(saved.strategy, StackedStrategy)
    assert saved.certificate == best.certificate
    assert [len(part.factors) for part in saved.strategy.parts] == [2, 2]
    for one, other in zip(arrays_of(saved.strategy), arrays_of(best.strategy), strict=True):
        np.testing.assert_array_equal(one, other)
    for relation in ("add-remove", "replace"):
        assert saved.strategy.sensitivity(relation) == best.strategy.sensitivity(relation)


def test_one_schema_for_products_and_another_for_stacks(tmp_path: Path) -> None:
    save_strategy(optimal_strategy(Prefix(4), neighbouring="add-remove"), tmp_path / "s.npz")
    assert json.loads((tmp_path / "s.npz.json").read_text())["schema"] == "matrixdp-strategy/1"
    edit("schema", "matrixdp-strategy/2")(tmp_path)
    with pytest.raises(FileFormatError, match="part_0_factor_0"):
        load_strategy(tmp_path / "s.npz")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "empty"),
        (["part_0_factor_0", "part_2_factor_0"], "part_0_factor_0"),
        (["part_0_factor_0", "part_0_factor_1", "part_1_factor_0"], "as many for each part"),
        (["part_0_factor_0", "other"], "part_0_factor_0"),
        (["part_0_factor_0", "part_1_factor_0", "weights"], "part_0_factor_0"),
        (["part_00_factor_0"], "part_0_factor_0"),
        (["part_0_factor_-1"], "part_0_factor_0"),
        ([f"part_{'9' * 5000}_factor_0"], "not a saved strategy"),
    ],
)
def test_foreign_stacks_are_refused(names: list[str], message: str, tmp_path: Path) -> None:
    save_strategy(optimal_strategy(Prefix(4), neighbouring="add-remove"), tmp_path / "s.npz")
    rewrite(lambda _: packed(**{name: np.eye(2) for name in names}))(tmp_path)
    edit("schema", "matrixdp-strategy/2")(tmp_path)
    with pytest.raises(FileFormatError, match=message):
        load_strategy(tmp_path / "s.npz")


def test_stacks_of_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    save_strategy(optimal_strategy(Prefix(4), neighbouring="add-remove"), tmp_path / "s.npz")
    rewrite(lambda _: packed(part_0_factor_0=np.eye(2), part_1_factor_0=np.eye(3)))(tmp_path)
    edit("schema", "matrixdp-strategy/2")(tmp_path)
    with pytest.raises(FileFormatError, match="one layout"):
        load_strategy(tmp_path / "s.npz")


def edit(field: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "s.npz.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))

    return change


def rewrite(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Change the file and make its statement speak of what it is now."""

    def damage(folder: Path) -> None:
        data = change((folder / "s.npz").read_bytes())
        (folder / "s.npz").write_bytes(data)
        facts = {"name": "s.npz", "sha256": hashlib.sha256(data).hexdigest()}
        edit("file", facts)(folder)

    return damage


def packed(**arrays: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def squeezed_and_broken(_: bytes) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, factor_0=np.random.default_rng(0).standard_normal((30, 30)))
    data = bytearray(content.getvalue())
    data[200:400] = bytes(200)
    return bytes(data)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "s.npz").unlink(), "does not exist"),
        (lambda folder: (folder / "s.npz.json").unlink(), "missing"),
        (lambda folder: (folder / "s.npz").write_bytes(b"PK"), "digest"),
        (lambda folder: (folder / "s.npz.json").write_text("{"), "not a statement"),
        (edit("schema", "other/1"), "schema"),
        (edit("file", None), "not a statement"),
        (edit("neighbouring", "swap"), "neighbouring"),
        (edit("neighbouring", None), "neighbouring"),
        (edit("neighbouring", ["replace"]), "neighbouring"),
        (edit("workload", 3), "workload"),
        (edit("file", {"sha256": 3}), "file.sha256"),
        (edit("value", "much"), "value"),
        (edit("value", "7.5"), "value"),
        (edit("value", True), "value"),
        (edit("value", 10**400), "value"),
        (edit("value", float("nan")), "malformed"),
        (edit("value", float("inf")), "malformed"),
        (edit("lower_bound", None), "lower_bound"),
        (edit("lower_bound", float("nan")), "malformed"),
        (edit("lower_bound", -1.0), "below"),
        (edit("lower_bound", 1.0), "gap"),
        (edit("value", 1e6), "gap"),
        (edit("gap", 1e-3), "gap=0.001 is not the"),
        (edit("gap", float("nan")), "malformed"),
        (edit("gap", None), "gap"),
        (edit("gap", "0"), "gap"),
        (edit("value", 0.0), "below"),
        (lambda folder: (folder / "s.npz.json").write_bytes(b"\xff\xfe{"), "not a statement"),
        (lambda folder: (folder / "s.npz.json").write_text("[" * 10**5), "not a statement"),
        (rewrite(lambda data: data[:-30]), "cut short or damaged"),
        (rewrite(lambda _: b""), "cut short or damaged"),
        (rewrite(lambda _: pickle.dumps([1, 2])), "cut short or damaged"),
        (rewrite(lambda _: packed(factor_0=np.array([object()]))), "dtype '[|]O'"),
        (rewrite(lambda _: packed(factor_1=np.eye(2))), "factor_0, factor_1"),
        (rewrite(lambda _: packed(other=np.eye(2))), "factor_0, factor_1"),
        (rewrite(lambda _: packed(factor_0=np.eye(4), other=np.eye(2))), "factor_0, factor_1"),
        (rewrite(lambda _: packed()), "empty"),
        (edit("comment", "fine"), "comment"),
        (rewrite(squeezed_and_broken), "cut short or damaged"),
        (rewrite(lambda _: packed(factor_0=np.ones(4))), "factor"),
        (rewrite(lambda _: packed(factor_0=np.ones((0, 4)))), "factor"),
        (rewrite(lambda _: packed(factor_0=np.full((4, 4), np.nan))), "factor"),
    ],
)
def test_damage_is_reported(damage: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    save_strategy(optimal_strategy(Prefix(4), neighbouring="add-remove"), tmp_path / "s.npz")
    damage(tmp_path)
    with pytest.raises(FileFormatError, match=message) as refusal:
        load_strategy(tmp_path / "s.npz")
    assert "pickle" not in str(refusal.value)  # numpy would advise to load it all the same
    command = ["--workload", "prefix:4", "--neighbouring", "add-remove"]
    found = ["--strategy", str(tmp_path / "s.npz")]
    assert main(["workload", "evaluate", *command, *found]) == 2


def test_more_cells_than_a_histogram_has_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = optimal_strategy(Product([Prefix(3), Prefix(5)]), neighbouring="add-remove")
    save_strategy(best, tmp_path / "s.npz")
    monkeypatch.setattr("matrixdp.files.publishing.strategies.LARGEST_HISTOGRAM", 4)
    with pytest.raises(FileFormatError, match=r"laid out as \(3, 5\)"):
        load_strategy(tmp_path / "s.npz")


def test_a_missing_gap_is_reported(tmp_path: Path) -> None:
    save_strategy(optimal_strategy(Prefix(4), neighbouring="add-remove"), tmp_path / "s.npz")
    path = tmp_path / "s.npz.json"
    statement = json.loads(path.read_text())
    del statement["gap"]
    path.write_text(json.dumps(statement))
    with pytest.raises(FileFormatError, match="missing required field `gap`"):
        load_strategy(tmp_path / "s.npz")


def test_a_strategy_without_a_bound_has_no_gap(tmp_path: Path) -> None:
    best = optimal_strategy(Prefix(4), neighbouring="add-remove")
    unbounded = replace(best, certificate=Certificate(best.certificate.value, 0.0))
    save_strategy(unbounded, tmp_path / "s.npz")
    assert json.loads((tmp_path / "s.npz.json").read_text())["gap"] is None
    assert load_strategy(tmp_path / "s.npz").certificate == unbounded.certificate


def test_only_npz(tmp_path: Path) -> None:
    best = optimal_strategy(Prefix(4), neighbouring="add-remove")
    with pytest.raises(InvalidParameterError, match=r"\.npz"):
        save_strategy(best, tmp_path / "s.npy")
