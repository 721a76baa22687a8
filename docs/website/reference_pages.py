"""Pages of the reference: one for each public part, with a table of the names it offers."""

import importlib
import inspect
import shutil
from pathlib import Path

# Every part that matrixdp offers by name, and the one that Dask users import.
PARTS = [
    "audit",
    "baselines",
    "covariance",
    "distributed",
    "errors",
    "estimators",
    "files",
    "ledger",
    "noise",
    "postprocess",
    "privacy",
    "queries",
    "report",
    "sensitivity",
    "training",
    "workloads",
]


def write(folder: Path) -> None:
    """Write a page for matrixdp and for each part; autosummary adds a page for each name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    homes: dict[str, str] = {}
    for part in ["matrixdp", *(f"matrixdp.{part}" for part in PARTS)]:
        names = public_names(part)
        for name in names:
            homes.setdefault(identity(part, name), f"{part}.{name}")
        homed = [(name, homes[identity(part, name)]) for name in names]
        (folder / f"{part.rpartition('.')[2]}.rst").write_text(page(part, homed))


def public_names(part: str) -> list[str]:
    """Return the names of a part, without parts of it."""
    module = importlib.import_module(part)
    names = [name for name in dir(module) if not name.startswith("_")]
    return [name for name in names if not inspect.ismodule(getattr(module, name))]


def identity(part: str, name: str) -> str:
    """Return a text that is the same for two names of the same thing."""
    thing = getattr(importlib.import_module(part), name)
    module = getattr(thing, "__module__", None)
    return f"{module}.{name}" if has_page(thing) else f"{part}.{name}"


def has_page(thing: object) -> bool:
    """Return whether a public name gets a page of its own: classes and functions do."""
    return inspect.isclass(thing) or callable(thing)


def page(part: str, homed: list[tuple[str, str]]) -> str:
    """Return the page of a part: its docstring, and its names by kind."""
    module = importlib.import_module(part)
    own = [name for name, home in homed if home == f"{part}.{name}"]
    classes = [name for name in own if inspect.isclass(getattr(module, name))]
    values = [name for name in own if not has_page(getattr(module, name))]
    functions = [name for name in own if name not in {*classes, *values}]
    elsewhere = [f"~{home}" for name, home in homed if name not in own]
    lines = [part, "=" * len(part), "", f".. automodule:: {part}", ""]
    lines += [f".. currentmodule:: {part}", ""]
    lines += table("Classes", classes, "   :toctree: names")
    lines += table("Functions", functions, "   :toctree: names")
    if values:
        lines += heading("Values")
        lines += [
            line for value in values for line in (f".. autodata:: {value}", "   :no-value:", "")
        ]
    lines += table("On pages of their own elsewhere", elsewhere)
    return "\n".join(lines)


def table(title: str, names: list[str], *options: str) -> list[str]:
    """Return the lines of a table of names, each with the first line of its docstring."""
    if not names:
        return []
    rows = [f"   {name}" for name in names]
    return [*heading(title), ".. autosummary::", "   :nosignatures:", *options, "", *rows, ""]


def heading(title: str) -> list[str]:
    """Return the lines of a heading."""
    return [title, "-" * len(title), ""]
