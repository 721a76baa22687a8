"""Every public name has its place in the reference."""

import importlib
import inspect
import zlib
from pathlib import Path

import pytest

import matrixdp
from documentation.test_paths import PUBLIC

PARTS = ["matrixdp", *(f"matrixdp.{part}" for part in sorted(PUBLIC))]
pytestmark = pytest.mark.site


def documented(site: Path) -> dict[str, str]:
    """Return the names in the inventory of the site, with their addresses."""
    *_, packed = (site / "objects.inv").read_bytes().split(b"\n", 4)
    entries = [line.split(" ", 4) for line in zlib.decompress(packed).decode().splitlines()]
    return {
        name: address.replace("$", name)
        for name, kind, _, address, _ in entries
        if kind.startswith("py:")
    }


def missing(names: dict[str, str]) -> list[str]:
    """Return the public names that an inventory lacks."""
    lacking = [part for part in PARTS if part not in names]
    for part in PARTS:
        module = importlib.import_module(part)
        for name in filter(is_public, dir(module)):
            thing = getattr(module, name)
            if inspect.ismodule(thing):
                lacking += [name] if thing.__name__ not in names else []
            elif not any(f"{home}.{name}" in names for home in homes(name, thing)):
                lacking.append(f"{part}.{name}")
    return lacking


def is_public(name: str) -> bool:
    return not name.startswith("_")


def homes(name: str, thing: object) -> list[str]:
    """Return the parts that offer the same thing."""
    return [part for part in PARTS if getattr(importlib.import_module(part), name, None) is thing]


def test_every_public_name_is_documented(site: Path) -> None:
    for module, extra in {"torch": "train", "sklearn": "sklearn", "dask.array": "dask"}.items():
        pytest.importorskip(module, reason=f"a part needs the extra `{extra}`")
    names = documented(site)
    assert missing(names) == []
    for name in ("Release", "queries.Gram", "training.PrivateTraining", "privacy.composed_mu"):
        assert names[f"matrixdp.{name}"].startswith(f"docs/api/names/matrixdp.{name}.html#")
        # Without its entry it would be missed.
        others = {key: names[key] for key in names if key != f"matrixdp.{name}"}
        assert f"matrixdp.{name}" in missing(others)


def test_what_is_offered_by_name_is_a_part() -> None:
    assert {name for name in dir(matrixdp) if inspect.ismodule(getattr(matrixdp, name))} <= PUBLIC
