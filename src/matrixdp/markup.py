"""HTML that cannot be injected: plain text is escaped wherever it enters.

Every string that is not `Markup` is text. It becomes part of a page only through `element`, which
escapes it, so that no name of a file, label or statement can add an element or an attribute.
"""

from collections.abc import Iterable

__all__ = ["Markup", "card", "element", "fact_rows", "joined", "visible"]

_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
# They have no content and no closing tag.
_VOID = {"br", "hr", "meta"}


class Markup(str):
    """HTML or SVG whose text is escaped."""

    __slots__ = ()


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """Return an element of HTML or SVG.

    Parameters
    ----------
    tag : str
        Its name.
    *content : object
        What it holds: `Markup` as it is, everything else as text.
    **attributes : object
        Its attributes as text. A dash is written as an underscore, and an underscore at the end is
        dropped: ``class_``, ``stroke_width``.

    Examples
    --------
    >>> element("p", "1 < 2, ", element("b", "<script>"), class_="note")
    '<p class="note">1 &lt; 2, <b>&lt;script&gt;</b></p>'
    """
    opening = tag + "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for name, value in attributes.items()
    )
    if tag in _VOID:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{joined(content)}</{tag}>")


def joined(content: Iterable[object], between: str = "") -> Markup:
    """Return pieces of markup and text one after the other, with a text between them."""
    pieces = (part if isinstance(part, Markup) else _escaped(part) for part in content)
    return Markup(_escaped(between).join(pieces))


def fact_rows(facts: Iterable[tuple[str, object]]) -> Markup:
    """Return a table of names and what they are."""
    rows = (
        element("tr", element("th", name, scope="row"), element("td", fact)) for name, fact in facts
    )
    return element("table", element("tbody", *rows))


def card(title: str, facts: Iterable[tuple[str, object]], *below: object) -> str:
    """Return what a notebook shows of an object: a title, and a table of facts about it."""
    heading = element("strong", title)
    return str(element("div", heading, fact_rows(facts), *below, class_="matrixdp"))


def visible(text: str) -> str:
    r"""Return a text with codes for what cannot be seen, or turns the text around.

    Examples
    --------
    >>> print(visible("line\n, \u202e"))
    line\n, \u202e
    """
    # Also halves of surrogate pairs, which names of files can have and UTF-8 cannot.
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _escaped(value: object) -> Markup:
    return Markup(visible(str(value)).translate(_ENTITIES))


def __dir__() -> list[str]:
    return __all__
