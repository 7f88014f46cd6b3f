"""Small plots of how fast topics grow: all of them show the last SPAN_S, so that they can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT, MARGIN = 120, 24, 2
SPAN_S = 600.0


class Rate(NamedTuple):
    """How fast something grew in the pause before a look: `per_s` records a second, `age_s` before the newest look."""

    age_s: float
    per_s: float


class Plot(NamedTuple):
    """The points of a small chart, and the newest and the largest rate; no points for fewer than two rates."""

    points: str
    newest: float
    largest: float


def plotted(rates: Sequence[Rate]) -> Plot:
    """Returns the chart of the rates of the last SPAN_S, the oldest first; all charts have the same axis of time.

    y = MARGIN             the largest rate
    y = HEIGHT - MARGIN    zero
    x = 0 … WIDTH          SPAN_S ago … the newest look
    """
    shown = [one for one in rates if one.age_s <= SPAN_S]
    newest, largest = (shown[-1].per_s, max(one.per_s for one in shown)) if shown else (0.0, 0.0)
    if len(shown) < 2:
        return Plot("", newest, largest)
    scale = (HEIGHT - 2 * MARGIN) / largest if largest > 0 else 0.0
    points = " ".join(
        f"{WIDTH * (1 - one.age_s / SPAN_S):.1f},{HEIGHT - MARGIN - one.per_s * scale:.1f}" for one in shown
    )
    return Plot(points, newest, largest)
