"""Entries for the registry of deployments: its fields, its words, and YAML that it reads."""

import os
from pathlib import Path
from typing import Any

import pytest

from matrixdp import InvalidParameterError
from matrixdp.mechanisms.about import About
from matrixdp.report import registry_entry, registry_file, report_on
from matrixdp.report.registry import PLACEHOLDER
from report.conftest import small_release

pytestmark = pytest.mark.usefixtures("folder")

SCHEMA = os.environ.get("MATRIXDP_REGISTRY_SCHEMA")
# What the registry requires, as of July 2026.
REQUIRED = {
    *("name", "data_curators", "description", "intended_use"),
    *("data_product_type", "data_product_region", "publication_date"),
}


def read(content: bytes) -> Any:
    yaml = pytest.importorskip("yaml", reason="YAML is read by PyYAML, of the extra `dask`")
    return yaml.safe_load(content)


def test_an_entry_says_what_the_files_prove() -> None:
    found = report_on(["ball.npy", "box.csv", "w.npz"])
    entry = registry_entry(found)
    assert (entry["status"], entry["tier"], entry["url_slug"]) == ("Draft", 2, "clinic")
    deployment = entry["deployment"]
    assert deployment["basic"].keys() == REQUIRED
    assert deployment["basic"]["name"] == "clinic"
    assert deployment["basic"]["data_curators"] == [PLACEHOLDER]
    assert deployment["privacy_loss"]["privacy_unit"] == "patient"
    whole = found.together
    assert whole is not None
    assert deployment["privacy_loss"]["privacy_parameters"] == {
        "epsilon": whole.epsilon,
        "delta": whole.delta,
    }
    assert deployment["deployment_model"]["release_type"] == "Many releases"


def test_what_is_public_is_not_called_protected() -> None:
    for file, public in (
        ("ball.npy", "Public: the number of records."),
        ("added.csv", "None in the numbers of the files."),
    ):
        (described,) = _values(registry_entry(report_on([file])), "unprotected_quantities")
        assert described == public


def _values(entry: Any, name: str) -> list[Any]:
    if not isinstance(entry, dict):
        return []
    found = [one for value in entry.values() for one in _values(value, name)]
    return [*([entry[name]] if name in entry else []), *found]


def test_the_file_is_yaml_that_reads_back_to_the_entry() -> None:
    hostile = About(dataset='a: "b" #c', purpose="- <x>\\ {y}", unit="é 😀 'z'")
    small_release().save("odd.npy", about=hostile)
    found = report_on(["odd.npy", "added.csv"])
    assert read(registry_file(found)) == registry_entry(found)


def test_nothing_false_is_registered() -> None:
    Path("alone.csv").write_text("1,2\n")
    with pytest.raises(InvalidParameterError, match="not all proven"):
        registry_entry(report_on(["ball.npy", "alone.csv"]))


@pytest.mark.skipif(
    SCHEMA is None, reason="MATRIXDP_REGISTRY_SCHEMA does not name the registry's schema"
)
@pytest.mark.parametrize("names", [["ball.npy"], ["added.csv", "box.csv", "w.npz"]])
def test_the_registry_accepts_it(names: list[str]) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="validates the entry")
    validator = jsonschema.Draft7Validator(read(Path(str(SCHEMA)).read_bytes()))
    entry = read(registry_file(report_on(names)))
    assert [error.message for error in validator.iter_errors(entry)] == []
    entry["deployment"]["basic"].pop("name")
    assert not validator.is_valid(entry)
