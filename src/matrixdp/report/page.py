"""A report as one page: nothing is loaded, nothing runs, and everything that is text is escaped."""

import platform
from collections.abc import Iterator
from datetime import datetime
from importlib import resources

import numpy as np
import scipy

from matrixdp.markup import Markup, element, fact_rows
from matrixdp.noise import NOISE_VERSION
from matrixdp.report.findings import CheckedAccount, CheckedFile, Report
from matrixdp.report.numbers import facts_about, guarantee_table
from matrixdp.report.picture import Curve, drawn_curves
from matrixdp.report.words import asked, in_words, verdict

__all__ = ["page_of"]

# A browser loads and runs nothing else, even if something were injected.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

# What no file can prove.
_BOUNDS = "The bounds of a record are true of every record, and were not chosen by looking at data."
_UNIT = "A record is about what is named above, and nobody has more records than is assumed."
_LABELS = (
    "Labels, names of columns and categories, and the words about data set and purpose may be "
    "published as they are: no noise protects them."
)
_NOISE = (
    "The noise was drawn by an unaltered program from the secret random bits of its machine, and "
    "the exact data stay where they are."
)


def page_of(report: Report, made: datetime) -> bytes:
    """Return a report as an HTML page.

    Parameters
    ----------
    report : Report
        What is known.
    made : datetime
        When, in UTC.
    """
    # From the file beside this one: a style is easier to read and to change there.
    style = resources.files("matrixdp.report").joinpath("style.css").read_text("utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", "Privacy report"),
        element("style", Markup(style)),
    )
    body = element(
        "body",
        element("h1", "Privacy report"),
        element("p", f"Made on {made:%Y-%m-%d at %H:%M} UTC by matrixdp {_version()}."),
        verdict(report),
        in_words(report),
        _numbers(report),
        element("section", element("h2", "Files"), *map(_file, report.files)),
        *(() if report.account is None else (_account(report.account),)),
        _signature(report),
        element("footer", _versions()),
    )
    page = element("html", head, body, lang="en-GB")
    return f"<!DOCTYPE html>\n{page}\n".encode()


def _numbers(report: Report) -> Markup:
    together = report.together
    rows = [
        (f"{number}. {file.path.name}", file.verified.guarantee)
        for number, file in enumerate(report.files, start=1)
        if file.verified is not None
    ]
    parts: list[object] = []
    if together is not None:
        parts += [guarantee_table(rows if len(rows) == 1 else [*rows, ("together", together)])]
        parts += [element("p", explanation) for explanation in _explanations(report)]
        whole = Curve("together" if len(rows) > 1 else "", together.mu)
        singles = [
            Curve(str(number), file.verified.guarantee.mu)
            for number, file in enumerate(report.files, start=1)
            if file.verified is not None
        ]
        parts += [
            element("h3", "Privacy curve"),
            element(
                "p",
                "Every point of the curve is a promise that holds: the smallest delta at each "
                "epsilon. The table above shows one of them.",
            ),
            element("div", drawn_curves(whole, singles if len(rows) > 1 else []), class_="wide"),
        ]
    else:
        parts.append(element("p", "No file proves a guarantee, so there are no numbers."))
    return element("section", element("h2", "In numbers"), *parts, class_="new-page")


def _explanations(report: Report) -> Iterator[str]:
    yield (
        "An (epsilon, delta) promise: whatever is concluded from the files, its probability "
        "changes by a factor of at most e to the power of epsilon between neighbouring data sets, "
        "apart from a probability of delta. Under add-remove, neighbouring data sets differ by one "
        "record that is there or not; under replace, by one record that is another. mu is the "
        "distance of the two cases in units of the noise. All numbers are rounded up."
    )
    relations = {verified.guarantee.neighbouring for verified in report.proven}
    if len(report.proven) > 1:
        yield (
            "Together: the squares of mu add up, a copy of a file counts once, and delta is the "
            "smallest of all. This assumes that every mu was fixed before the first file was seen."
        )
    if len(relations) > 1:
        yield (
            "Some files are stated under add-remove and others under replace. The whole is stated "
            "under replace: one replacement is one removal and one addition, so the mu of the "
            "former counts twice."
        )


def _file(file: CheckedFile) -> Markup:
    heading = element("h3", element("bdi", str(file.path)))
    digest = ("SHA-256", element("span", file.sha256, class_="digest"))
    if file.verified is None:
        return element(
            "div",
            heading,
            element("p", element("strong", "NOT PROVEN. "), file.reason, class_="verdict bad"),
            fact_rows([digest]),
            class_="whole",
        )
    statement, guarantee = file.verified
    about, payment = statement.about, statement.payment
    said = [] if about is None else [(n, getattr(about, n)) for n in ("dataset", "purpose", "unit")]
    paid: list[tuple[str, object]] = []
    if payment is not None:
        entry = f"account {payment.account}, entry {payment.sequence} of ledger {payment.ledger}"
        paid = [("paid by, as it states", entry)]
    facts: list[tuple[str, object]] = [
        ("verified", f"it proves {guarantee}"),
        digest,
        ("answers", asked(statement)),
        *((f"{name}, as it states", text) for name, text in said if text is not None),
        *facts_about(file.verified),
        *paid,
        ("made", f"{statement.date or 'date unknown'}, version {statement.version or 'unknown'}"),
    ]
    return element("div", heading, fact_rows(facts), class_="whole")


def _account(account: CheckedAccount) -> Markup:
    words, terms = account.in_words, account.balance.terms
    facts: list[tuple[str, object]] = [
        ("ledger", element("span", account.address, class_="file")),
        ("identity", element("span", account.identity, class_="digest")),
        ("account", account.balance.name),
        ("promise", terms.in_words),
        ("verified", f"entries of the ledger that were computed again: {account.entries}"),
    ]
    if terms.plans:
        facts.append(("declared trainings", str(len(terms.plans))))
    payments = [
        element("li", *(element("div", line) for line in lines)) for lines in words.payments
    ]
    wrong: tuple[object, ...] = ()
    if account.findings:
        found = element("ul", *(element("li", finding) for finding in account.findings))
        heading = element("strong", "DOES NOT AGREE:")
        wrong = (element("div", heading, found, class_="verdict bad"),)
    return element(
        "section",
        element("h2", "The whole account"),
        *wrong,
        fact_rows(facts),
        *(element("p", line) for line in words.balance),
        element("h3", "Everything that was paid from it"),
        element("ol", *payments) if payments else element("p", "Nothing was paid from it yet."),
        class_="new-page",
    )


def _signature(report: Report) -> Markup:
    questions = [
        _BOUNDS,
        _UNIT,
        _LABELS,
        _NOISE,
    ]
    if report.account is None:
        questions.append(
            "Nothing else was or will be released about the same records, or it is accounted for "
            "elsewhere."
        )
    else:
        questions.append("Whatever is released about the same records is paid from this account.")
    boxes = (element("li", element("span", class_="box"), each) for each in questions)
    lines = (element("div", what) for what in ("Name", "Role", "Date and place", "Signature"))
    return element(
        "section",
        element("h2", "Signature"),
        element("p", "No file can prove the following. Whoever signs confirms it:"),
        element("ul", *boxes, class_="check"),
        element("div", *lines, class_="sign"),
        class_="whole",
    )


def _versions() -> str:
    return (
        f"Verified by matrixdp {_version()} (noise {NOISE_VERSION}) with Python "
        f"{platform.python_version()}, numpy {np.__version__} and scipy {scipy.__version__}. "
        "Numbers are rounded to the private side."
    )


def _version() -> str:
    from matrixdp import __version__  # noqa: PLC0415 - the top level imports what is below it

    return __version__
