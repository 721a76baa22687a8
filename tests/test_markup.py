"""Markup: text never becomes an element or an attribute, whatever it holds."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from matrixdp.markup import Markup, card, element, fact_rows, joined


class Reader(HTMLParser):
    """Reads what a browser would: elements with their attributes, and the text between them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(markup: str) -> Reader:
    reader = Reader()
    reader.feed(markup)
    reader.close()
    return reader


@given(st.text(), st.text())
def test_text_stays_text(text: str, attribute: str) -> None:
    reader = read(element("p", text, title=attribute))
    ((tag, ((name, value),)),) = reader.tags
    assert (tag, name) == ("p", "title")
    shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
    assert reader.text == shown
    assert value == "".join(one if one.isprintable() else ascii(one)[1:-1] for one in attribute)


def test_what_cannot_be_seen_is_shown_as_a_code() -> None:
    # Such as the character that turns the text after it around: "released.csv" for "vsc.desaeler".
    assert element("p", "a\u202eb\udcffc\nd") == "<p>a\\u202eb\\udcffc\\nd</p>"
    assert element("p", "a\u202eb\udcff").encode()  # a name of a file that is not UTF-8


def test_markup_is_kept_and_everything_else_is_not() -> None:
    inner = element("b", "<i>")
    assert element("p", inner, 3, None) == "<p><b>&lt;i&gt;</b>3None</p>"
    assert joined([inner, "<"], ">") == "<b>&lt;i&gt;</b>&gt;&lt;"
    # What is made of markup by methods of str is text again.
    assert element("p", inner + "<u>") == "<p>&lt;b&gt;&amp;lt;i&amp;gt;&lt;/b&gt;&lt;u&gt;</p>"
    assert isinstance(element("br"), Markup)
    assert element("br") == "<br>"
    assert element("a", class_="x", aria_label='"') == '<a class="x" aria-label="&quot;"></a>'


def test_a_card_is_a_table_of_facts() -> None:
    reader = read(card("Budget <", [("epsilon", "1 <b>")], element("p", "below")))
    tags = [tag for tag, _ in reader.tags]
    assert tags == ["div", "strong", "table", "tbody", "tr", "th", "td", "p"]
    assert reader.text == "Budget <epsilon1 <b>below"
    assert read(fact_rows([])).text == ""
