"""The privacy curves of a report, as a picture that is part of the page."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from matrixdp.markup import Markup, element
from matrixdp.parameters import EPSILON
from matrixdp.privacy.bound import privacy_delta, privacy_epsilon
from matrixdp.rounding import shown_up

__all__ = ["Curve", "drawn_curves"]

_LEAST_DELTA = 1e-12
_POINTS = 121
# The picture, and what is left for its labels; in units of its own, as it is scaled to the page.
_WIDTH, _HEIGHT = 640.0, 340.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 24.0, 34.0, 48.0
# Told apart without colour.
_DASHES = ("6 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2 1 2")
# More lines than that cannot be told apart.
_MOST_LINES = 1 + len(_DASHES)


class Curve(NamedTuple):
    """A line of the picture: what it is called at its end, and the mu that it follows from."""

    name: str
    mu: float


def drawn_curves(whole: Curve, parts: Sequence[Curve]) -> Markup:
    """Return delta over epsilon of the whole, as a solid line, and of its parts, dashed.

    Parameters
    ----------
    whole : Curve
        Of everything together; its mu is the largest.
    parts : sequence of Curve
        Left out if there are more than five lines; those with the same mu are one.
    """
    last = min(privacy_epsilon(whole.mu, _LEAST_DELTA), EPSILON.largest)
    if last == 0.0:
        return element("p", f"The delta is below {_LEAST_DELTA} at every epsilon.")
    lines = _without_copies(parts)
    shown = [whole, *lines] if len(lines) < _MOST_LINES else [whole]
    description = (
        f"Smallest delta at each epsilon from 0 to {shown_up(last, 3)}, on a logarithmic scale. "
        + "; ".join(f"{one.name}: mu {shown_up(one.mu, 4)}" for one in shown)
    )
    pieces = [
        piece
        for number, curve in enumerate(shown)
        for piece in _line(curve, last, "none" if number == 0 else _DASHES[number - 1])
    ]
    return element(
        "svg",
        element("title", "Privacy curves"),
        element("desc", description),
        *_axes(last),
        *pieces,
        viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}",
        role="img",
        aria_label=description,
        xmlns="http://www.w3.org/2000/svg",
    )


def _without_copies(parts: Sequence[Curve]) -> list[Curve]:
    names: dict[float, list[str]] = {}
    for name, mu in parts:
        names.setdefault(mu, []).append(name)
    return [Curve(", ".join(several), mu) for mu, several in names.items()]


def _line(curve: Curve, last: float, dashes: str) -> Iterator[Markup]:
    # A part ends where its own delta is too small.
    end = min(last, privacy_epsilon(curve.mu, _LEAST_DELTA))
    epsilons = np.linspace(0.0, end, _POINTS)
    deltas = np.asarray(privacy_delta(curve.mu, epsilons))
    points = [
        (_across(epsilon, last), _down(max(delta, _LEAST_DELTA)))
        for epsilon, delta in zip(epsilons.tolist(), deltas.tolist(), strict=True)
    ]
    width = 2.5 if dashes == "none" else 1.5
    yield element(
        "polyline",
        points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points),
        fill="none",
        stroke="black",
        stroke_width=width,
        stroke_dasharray=dashes,
    )
    # In the middle, above the line, where no two of them meet.
    x, y = points[_POINTS // 2]
    yield _label(curve.name, x + 6, y - 4, "start")


def _axes(last: float) -> Iterator[Markup]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    yield element(
        "path",
        d=f"M{_LEFT:g} {_TOP:g}V{bottom:g}H{right:g}",
        fill="none",
        stroke="black",
    )
    for power in range(0, -13, -3):
        y = _down(10.0**power)
        yield element("path", d=f"M{_LEFT - 5:g} {y:.1f}H{right:g}", stroke="black", opacity=0.25)
        yield _label(f"1e{power}" if power else "1", _LEFT - 8, y + 4, "end")
    for tick in _ticks(last):
        x = _across(tick, last)
        yield element("path", d=f"M{x:.1f} {bottom:g}v5", stroke="black")
        yield _label(f"{tick:g}", x, bottom + 18, "middle")
    yield _label("epsilon", (_LEFT + right) / 2, _HEIGHT - 8, "middle")
    yield _label("delta", _LEFT - 8, _TOP - 16, "end")


def _label(text: str, x: float, y: float, anchor: str) -> Markup:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", font_size=13, text_anchor=anchor)


def _ticks(last: float) -> list[float]:
    """Return about five round numbers from 0 on."""
    rough = last / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= rough)
    return [step * number for number in range(int(last / step) + 1)]


def _across(epsilon: float, last: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * epsilon / last


def _down(delta: float) -> float:
    share = math.log10(delta) / math.log10(_LEAST_DELTA)
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * share
