"""The page: everything that was found is on it, nothing runs, and nothing private is shown."""

import json
import re
import shutil
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from matrixdp import Budget
from matrixdp.ledger import Ledger
from matrixdp.mechanisms.about import About
from matrixdp.report import Report, page_of, report_on
from matrixdp.report.picture import Curve, drawn_curves
from report.conftest import small_release

pytestmark = pytest.mark.usefixtures("folder")

# What a browser would run or load.
FORBIDDEN = {"script", "img", "iframe", "object", "embed", "link", "form", "base", "audio", "video"}
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'&"


class Page(HTMLParser):
    """A page as a browser reads it."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.source = page_of(report, datetime(2026, 1, 31, tzinfo=UTC)).decode()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag  # every element is closed, in its place

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data


def check_harmless(page: Page) -> None:
    assert FORBIDDEN.isdisjoint(page.tags)
    names = {name for name, _ in page.attributes}
    assert not any(name.startswith("on") for name in names)
    assert {"src", "href", "action", "style"}.isdisjoint(names)
    assert not re.search(r"url\(|@import", page.source)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_the_page_says_what_was_found() -> None:
    page = Page(report_on(["ball.npy", "box.csv", "w.npz"]))
    check_harmless(page)
    assert page.open == []
    assert page.text.count("Verified.") == 1
    assert "NOT" not in page.text
    for said in (
        "Made on 2026-01-31",
        "of the data set clinic, for quarterly report, with random noise",
        "a record is about one patient.",
        "which of two possible records one of them is",
        "planned before the first one was seen",
        "(1, 1e-06)-differential privacy under replacing one record (mu = 0.2368).",
        "the matrix by a Frobenius norm of at most 1 (FrobeniusBall)",
        "its entry j by at most the j-th of 1, 2 (RowBox)",
        "answers to the workload Prefix(4)",
        "matrix mechanism, measuring by IMGM",
        "matrixdp-noise-1",
        "Date and place",
    ):
        assert said in page.text, said
    for name in ("ball.npy", "box.csv", "w.npz"):
        assert json.loads(Path(f"{name}.json").read_text())["file"]["sha256"] in page.text


def test_no_number_of_a_matrix_is_shown() -> None:
    # 7654.25 is the exact entry; what was released is near it, and not shown either.
    page = Page(report_on(["ball.npy", "added.csv"]))
    assert not re.search(r"\b7[67]\d\d\b", page.text)


def test_what_is_not_proven_is_said_first_and_not_believed() -> None:
    # A statement that claims more than its noise gives, with hostile words.
    statement = Path("box.csv.json")
    claimed = statement.read_text().replace('"epsilon": 1.0', '"epsilon": 0.125')
    statement.write_text(claimed)
    page = Page(report_on(["ball.npy", "box.csv"]))
    assert page.text.index("NOT AS CLAIMED") < page.text.index("In plain words")
    assert "Verified." not in page.text
    assert "0.125" not in page.text.replace("claims", "").split("does not prove")[0]
    assert page.text.count("NOT PROVEN") == 2
    nothing = Page(report_on(["box.csv"]))
    assert "Nothing is promised" in nothing.text
    assert "svg" not in nothing.tags


def test_words_of_others_look_like_no_others() -> None:
    # A quotation mark in the words does not end the quotation.
    small_release().save("q.npy", about=About(dataset="x”, proven by NIST, “"))
    page = Page(report_on(["q.npy"]))
    assert "data set <q><em>x”, proven by NIST, “</em></q>, with" in page.source


def test_hostile_names_and_words_are_text() -> None:
    name = "a<img src=x onerror=alert(1)>\u202e&'\".csv"
    release = small_release()
    release.save(name, about=About(dataset=HOSTILE, purpose=HOSTILE, unit=HOSTILE))
    # A field that nothing proves can hold anything.
    statement = Path(f"{name}.json")
    fields = json.loads(statement.read_text())
    fields["query"] = f"{HOSTILE}\u202e\n"
    statement.write_text(json.dumps(fields))
    shutil.copy(name, "<script>.csv")  # without a statement: the reason names it
    found = report_on([name, "<script>.csv"])
    assert found.problems == 1
    page = Page(found)
    check_harmless(page)
    assert page.open == []
    assert page.text.count(HOSTILE) >= 4
    assert "\\u202e" in page.text
    assert "\u202e" not in page.source


def test_a_name_that_is_not_utf_8() -> None:
    name = b"a\xff.csv".decode("utf-8", "surrogateescape")
    try:
        for end in ("", ".json"):
            Path(f"box.csv{end}").rename(f"{name}{end}")
    except (OSError, UnicodeError):
        pytest.skip("this file system has only names in UTF-8")
    assert "a\\udcff.csv" in Page(report_on([name])).text


def test_one_proven_file_of_several_is_not_taken_for_all_of_them() -> None:
    Path("alone.csv").write_text("1,2\n")
    page = Page(report_on(["ball.npy", "alone.csv"]))
    assert "Whoever sees the one proven file and knows everything" in page.text
    assert "No ledger was named" in page.text
    assert "Whoever sees the file and" in Page(report_on(["ball.npy"])).text


def test_the_account(tmp_path: Path) -> None:
    from matrixdp import IMGM, FrobeniusBall  # noqa: PLC0415

    ball = FrobeniusBall(1.0, "replace")
    with Ledger.create(f"sqlite:///{tmp_path}/a.ledger", keys=tmp_path / "a.keys") as ledger:
        account = ledger.open_account(
            "clinic", Budget(2.0, 1e-5), neighbouring="replace", unit="patient", records_per_unit=2
        )
        for name in ("a.npy", "b.npy"):
            IMGM(ball, Budget(0.25, 1e-6)).release_to(name, [[1.0]], privacy_filter=account)
        page = Page(report_on(["a.npy"], ledger=ledger, account="clinic"))
        assert "every patient, who has at most 2 records" in page.text
        assert "b.npy" in page.text  # the whole account, not only the files that were named
        assert "No ledger was named" not in page.text
        assert "Verified." in page.text
        wrong = Page(report_on(["ball.npy"], ledger=ledger, account="clinic"))
        assert "1 finding about the ledger" in wrong.text
        assert "DOES NOT AGREE" in wrong.text
        check_harmless(wrong)


def test_curves_are_told_apart_without_colour() -> None:
    parts = [Curve("1", 0.2), Curve("2", 0.1), Curve("3", 0.1)]
    picture = drawn_curves(Curve("together", 0.3), parts)
    dashes = re.findall(r'<polyline[^>]*stroke-dasharray="([^"]*)"', picture)
    assert len(dashes) == len(set(dashes)) == 3  # two files with the same mu are one line
    assert set(re.findall(r'stroke="([^"]*)"', picture)) == {"black"}
    assert ">2, 3</text>" in picture
    many = [Curve(str(n), n / 100) for n in range(1, 8)]
    assert drawn_curves(Curve("together", 0.3), many).count("<polyline") == 1
    for mu in (1e-13, 1e-6, 50.0, 1e4):
        assert "nan" not in drawn_curves(Curve("", mu), [])
