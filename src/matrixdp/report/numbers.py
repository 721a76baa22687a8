"""Mechanisms and their parameters: what one record can change, and the noise that was added."""

from collections.abc import Iterator, Sequence

from matrixdp.files.publishing.chunked_release import ChunkedStatement
from matrixdp.files.publishing.releases import ReleaseStatement
from matrixdp.files.publishing.verification import Verified
from matrixdp.files.schemas.values import covariance_of, sensitivity_of
from matrixdp.markup import Markup, element
from matrixdp.mechanisms.in_words import noise_in_words, sensitivity_in_words
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.rounding import shown_up

__all__ = ["facts_about", "guarantee_table"]


def guarantee_table(named: Sequence[tuple[str, Guarantee]]) -> Markup:
    """Return a table of guarantees, a row for each name."""
    headings = ("", "epsilon", "delta", "mu", "neighbouring data sets")
    head = element("thead", element("tr", *(element("th", each, scope="col") for each in headings)))
    rows = (
        element(
            "tr",
            element("th", name, scope="row"),
            *(
                element("td", shown_up(number), class_="number")
                for number in (guarantee.epsilon, guarantee.delta, guarantee.mu)
            ),
            element("td", guarantee.neighbouring),
        )
        for name, guarantee in named
    )
    return element("div", element("table", head, element("tbody", *rows)), class_="wide")


def facts_about(verified: Verified) -> Iterator[tuple[str, object]]:
    """Yield the mechanism of a release and its parameters, by name."""
    statement = verified.statement
    is_matrix = isinstance(statement, ReleaseStatement | ChunkedStatement)
    several = "" if is_matrix else "matrix mechanism, measuring by "
    yield "mechanism, as it states", f"{several}{statement.mechanism}"
    yield "one record changes", sensitivity_in_words(sensitivity_of(statement.sensitivity))
    yield "noise", noise_in_words(covariance_of(statement.covariance))
    yield "drawn by", statement.noise
    if not isinstance(statement, ReleaseStatement | ChunkedStatement):
        names = ", ".join(f"{each.name} ({len(each.labels)})" for each in statement.attributes)
        if names:
            yield "attributes, and how many categories each has", names
        return
    yield (
        "matrix",
        f"{statement.file.shape[0]} by {statement.file.shape[1]}, {statement.file.dtype}",
    )
    if statement.floor is not None:
        yield "guaranteed by independent noise of scale", f"{statement.floor:g}"
    if isinstance(statement, ChunkedStatement):
        rows, columns = statement.file.chunks
        yield "in chunks of", f"{rows} by {columns}"
        return
    kept = [name for name in ("header", "index") if getattr(statement.file, name)]
    if kept:
        yield "labels, published as they are", " and ".join(kept)
    for kind, count in statement.counts.items():
        yield f"noisy count of {kind}", f"{count.value:g}, noise of scale {count.noise_scale:g}"
    if statement.applied:
        yield "post-processing", ", then ".join(step.kind for step in statement.applied)
