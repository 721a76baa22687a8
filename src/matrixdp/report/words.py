"""The first page of a report, for people who know no formulas."""

from collections.abc import Iterator

from matrixdp.files.publishing.chunked_release import ChunkedStatement
from matrixdp.files.publishing.releases import ReleaseStatement
from matrixdp.files.publishing.verification import Statement
from matrixdp.markup import Markup, element, fact_rows, joined
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.report.findings import CheckedAccount, CheckedFile, Report
from matrixdp.report.learning import best_guess, best_guess_of_promise, power
from matrixdp.rounding import shown_up

__all__ = ["asked", "in_words", "verdict"]

_GROUPS = (2, 3, 5, 10)
_FALSE_ALARMS = 0.01
# Beyond, a promise means nothing.
_LARGEST_MU = 100.0


def verdict(report: Report) -> Markup:
    """Return whether everything is as it is claimed, as the first thing that is read."""
    if report.problems:
        return element(
            "div",
            element("strong", "NOT AS CLAIMED."),
            f" {_bad_files(report)} Do not sign before this is resolved.",
            class_="verdict bad",
            role="alert",
        )
    proven = _counted(len(report.files), "file proves its guarantee", "files prove their guarantee")
    agrees = "" if report.account is None else " The ledger agrees with itself and with the files."
    return element("div", element("strong", "Verified."), f" {proven}.{agrees}", class_="verdict")


def _bad_files(report: Report) -> str:
    bad = len(report.files) - len(report.proven)
    findings = report.problems - bad
    files = f"{bad} of {_counted(len(report.files), 'file', 'files')} not proven." if bad else ""
    ledger = f"{_counted(findings, 'finding', 'findings')} about the ledger." if findings else ""
    return " ".join(filter(None, (files, ledger)))


def in_words(report: Report) -> Markup:
    """Return what was released, about whom, and what somebody can learn at most."""
    return element(
        "section",
        element("h2", "In plain words"),
        element("h3", "What was released"),
        element(
            "p",
            "Words in italics and quotation marks are those of whoever made the files; nothing "
            "proves them.",
        ),
        element("ol", *(element("li", _released(file)) for file in report.files)),
        element("h3", "About whom"),
        element("p", _unit(report)),
        element("h3", "What somebody can learn at most"),
        *_learned(report),
        element("h3", "If one person has several records"),
        *_several(report),
    )


def asked(statement: Statement) -> Markup:
    """Return what a release answers."""
    if not isinstance(statement, ReleaseStatement | ChunkedStatement):
        return joined([f"answers to the workload {statement.workload_in_words}"])
    rows, columns = statement.file.shape
    said = statement.query if isinstance(statement, ReleaseStatement) else None
    query = () if said is None else (", ", _quoted(said))
    return joined([f"a matrix of {rows} rows and {columns} columns", *query])


def _quoted(text: str) -> Markup:
    """Return the words of whoever made a file; they look like no others, whatever they say."""
    return element("q", element("em", text))


def _released(file: CheckedFile) -> Markup:
    name = element("bdi", str(file.path), class_="file")
    if file.verified is None:
        return joined([name, ": ", element("strong", "NOT PROVEN"), ", so nothing is said of it."])
    statement, about = file.verified.statement, file.verified.statement.about
    parts: list[object] = [name, ": ", asked(statement)]
    if about is not None and about.dataset is not None:
        parts += [", of the data set ", _quoted(about.dataset)]
    if about is not None and about.purpose is not None:
        parts += [", for ", _quoted(about.purpose)]
    return joined([*parts, ", with random noise added."])


def _unit(report: Report) -> Markup:
    if report.account is not None and report.account.balance.terms.unit != "record":
        terms = report.account.balance.terms
        promised = (
            f"The account makes its promise to every {terms.unit}, who has {terms.most_records} "
        )
        checked = (
            "in the data. That nobody has more is assumed, and up to whoever runs the account; "
            "training runs that sample such units do not need it."
        )
        return joined([promised, checked])
    units = {
        verified.statement.about.unit
        for verified in report.proven
        if verified.statement.about is not None and verified.statement.about.unit is not None
    }
    if not units:
        unknown = "Nothing says whom a record is about; whoever signs should know."
        return joined(["The promise is made to every record. ", unknown])
    known = joined(map(_quoted, sorted(units)), " or one ")
    said = "By the words of whoever made the files, a record is about one "
    assumed = ". That nobody has more than one record is assumed."
    return joined(["The promise is made to every record. ", said, known, assumed])


def _learned(report: Report) -> Iterator[Markup]:
    if report.account is not None:
        yield from _learned_from_account(report.account)
    guarantee = report.together
    if guarantee is None:
        if report.account is None:
            yield element("p", "Nothing is promised: no file proves its guarantee.")
        return
    several, proven = len(report.files) > 1, len(report.proven)
    seen = "the file"
    if several:
        seen = "the one proven file" if proven == 1 else f"the {proven} proven files"
    who = "Of these files alone: whoever sees" if report.account is not None else "Whoever sees"
    yield element(
        "p",
        f"{who} {seen} and knows everything about everybody, but not {_secret(guarantee)}, "
        "two cases that are equally likely beforehand, guesses right in at most ",
        element("strong", f"{_of_hundred(best_guess(guarantee.mu))} of 100 cases"),
        ", where coins alone would be right in 50. A test that raises a false alarm in 1 of 100 "
        f"cases finds it in at most {_of_hundred(power(guarantee.mu, _FALSE_ALARMS))} of 100.",
    )
    yield element(
        "p",
        "This holds whatever else is known or published by others, however much computing is "
        "spent, and whatever is done with the files afterwards. What the files say of everybody "
        "together is what they were made for, and is not hidden.",
    )
    if several and report.account is None:
        yield element(
            "p",
            element("strong", "No ledger was named"),
            ": this is what the files would cost together if they were planned before the first "
            "one was seen, and if nothing else was ever released about the same records. Whether "
            "that is so, no file can say; a ledger can.",
        )


def _learned_from_account(account: CheckedAccount) -> Iterator[Markup]:
    terms = account.balance.terms
    yield element("p", account.in_words.promise)
    chance = best_guess_of_promise(terms.epsilon, terms.delta)
    if account.mu is not None:
        chance = min(chance, best_guess(account.mu))
    yield element(
        "p",
        f"Whoever sees everything that is ever paid from the account and must guess between two "
        f"equally likely cases of one {terms.unit} is right in at most ",
        element("strong", f"{_of_hundred(chance)} of 100 cases"),
        ", where coins alone would be right in 50. This holds for the account as a whole, also "
        "for what will still be paid from it.",
    )


def _several(report: Report) -> Iterator[Markup]:
    guarantee = report.together
    if guarantee is None:
        yield element("p", "Nothing is promised.")
        return
    about = "" if report.account is None else ", of the files alone,"
    yield element(
        "p",
        f"The promise{about} is weaker for somebody with several records. At delta "
        f"{shown_up(guarantee.delta, 4)}:",
    )
    groups = [count for count in _GROUPS if count * guarantee.mu <= _LARGEST_MU]
    yield fact_rows(
        [
            ("1 record", _promise(guarantee)),
            *((f"{count} records", _promise(guarantee.for_group(count))) for count in groups),
        ]
    )


def _promise(guarantee: Guarantee) -> str:
    chance = _of_hundred(best_guess(guarantee.mu))
    return f"epsilon {shown_up(guarantee.epsilon, 4)}; right in at most {chance} of 100 cases"


def _secret(guarantee: Guarantee) -> str:
    if guarantee.neighbouring == "add-remove":
        return "whether one certain record is in the data"
    return "which of two possible records one of them is"


def _of_hundred(chance: float) -> str:
    return shown_up(100 * chance, 3)


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"
