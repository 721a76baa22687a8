"""Entries for the OpenDP deployments registry, as far as files can fill them in.

The registry (https://github.com/opendp/deployments-registry-data) holds one YAML file for each
deployment. What only people know is marked as still to be filled in, and the status is "Draft".
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from matrixdp.errors import InvalidParameterError
from matrixdp.files.publishing.chunked_release import ChunkedStatement
from matrixdp.files.publishing.releases import ReleaseStatement
from matrixdp.files.publishing.verification import Statement
from matrixdp.markup import visible
from matrixdp.report.findings import Report

__all__ = ["PLACEHOLDER", "registry_entry", "registry_file"]

PLACEHOLDER = "(to be filled in)"
"""Stands for what no file says."""


def registry_entry(report: Report) -> dict[str, Any]:
    """Return the entry of a deployment, with the field names of the registry.

    Raises
    ------
    InvalidParameterError
        If anything in the report is not as it is claimed: nobody should register that.
    """
    guarantee = report.together
    if report.problems or guarantee is None:
        raise InvalidParameterError(
            "files are not all proven: an entry would register a claim that is false"
        )
    statements = [verified.statement for verified in report.proven]
    dates = sorted(one.date for one in statements if one.date is not None)
    name = _stated(report, "dataset")
    terms = None if report.account is None else report.account.balance.terms
    promise = guarantee if terms is None else terms
    return {
        "url_slug": _slug(report.files[0].path.name if name == PLACEHOLDER else name),
        "status": "Draft",
        "tier": 2,
        "deployment": {
            "basic": {
                "name": name,
                "data_curators": [PLACEHOLDER],
                "intended_use": _stated(report, "purpose"),
                "data_product_type": "Summary statistics",
                "data_product_region": PLACEHOLDER,
                "description": "; ".join(dict.fromkeys(map(_described, statements))),
                "publication_date": dates[0] if dates else PLACEHOLDER,
            },
            "dp_variant": {
                "variant_name": "Approximate DP",
                "unprotected_quantities": _unprotected(report),
            },
            "privacy_loss": {
                "privacy_unit": _stated(report, "unit") if terms is None else terms.unit,
                "privacy_unit_details": _neighbours(report),
                "privacy_parameters": {"epsilon": promise.epsilon, "delta": promise.delta},
                "privacy_parameters_details": (
                    f"The releases have Gaussian privacy mu = {guarantee.mu!r} together, from "
                    "which a delta follows for every epsilon."
                ),
            },
            "deployment_model": {
                "model_name": "Central",
                "release_type": "One release" if len(statements) == 1 else "Many releases",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": _post_processing(report),
                "composition": _composition(report),
            },
            "implementation": {"mechanisms": _mechanisms(report)},
            "administrative": {"registry_authors": [PLACEHOLDER]},
        },
    }


def registry_file(report: Report) -> bytes:
    """Return the entry as the content of a YAML file."""
    return ("\n".join(_lines(registry_entry(report), "")) + "\n").encode()


def _lines(fields: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Yield the lines of a mapping; texts are quoted as in JSON, which YAML reads as well."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _lines(value, f"{indent}  ")
        elif isinstance(value, list):
            yield f"{indent}{name}:"
            yield from (f"{indent}  - {_scalar(item)}" for item in value)
        else:
            yield f"{indent}{name}: {_scalar(value)}"


def _scalar(value: str | float) -> str:
    if isinstance(value, str):
        return json.dumps(visible(value), ensure_ascii=False)
    # YAML 1.1 takes 1e-05 for a text: a number has a point in it.
    text = json.dumps(value)
    return text if "e" not in text or "." in text else text.replace("e", ".0e")


def _stated(report: Report, field: str) -> str:
    """Return what the statements say of a dataset, purpose or unit."""
    said = (getattr(one.statement.about, field, None) for one in report.proven)
    return " and ".join(dict.fromkeys(text for text in said if text)) or PLACEHOLDER


def _described(statement: Statement) -> str:
    if not isinstance(statement, ReleaseStatement | ChunkedStatement):
        return f"answers to the workload {statement.workload_in_words}"
    rows, columns = statement.file.shape
    said = statement.query if isinstance(statement, ReleaseStatement) else None
    query = "" if said is None else f" ({said})"
    return f"a matrix of {rows} rows and {columns} columns{query}"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "release"


def _unprotected(report: Report) -> str:
    labelled = any(
        isinstance(one.statement, ReleaseStatement)
        and (one.statement.file.header or one.statement.file.index)
        for one in report.proven
    )
    public = ["names of rows and columns"] if labelled else []
    if any(one.guarantee.neighbouring == "replace" for one in report.proven):
        public.append("the number of records")
    return f"Public: {' and '.join(public)}." if public else "None in the numbers of the files."


def _neighbours(report: Report) -> str:
    relations = {one.guarantee.neighbouring for one in report.proven}
    if relations == {"add-remove"}:
        return "Neighbouring data sets differ by one record that is added or removed."
    several = " One that adds or removes a record counts twice." if len(relations) > 1 else ""
    return f"Neighbouring data sets differ by one record that is replaced.{several}"


def _composition(report: Report) -> str:
    if report.account is None:
        return "The squares of mu add up (Gaussian differential privacy)."
    return "A ledger holds the budget and pays for every release before its noise is drawn."


def _post_processing(report: Report) -> str:
    steps = [
        step.kind
        for one in report.proven
        if isinstance(one.statement, ReleaseStatement)
        for step in one.statement.applied
    ]
    return ", ".join(dict.fromkeys(steps)) or "None that the files state."


def _mechanisms(report: Report) -> str:
    names = ", ".join(dict.fromkeys(one.statement.mechanism for one in report.proven))
    versions = {one.statement.version for one in report.proven if one.statement.version}
    by = f" {', '.join(sorted(versions))}" if versions else ""
    return (
        f"Gaussian noise, exact on a grid so that floating point gives nothing away: {names}, by "
        f"matrixdp{by}."
    )
