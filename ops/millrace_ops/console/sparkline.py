"""A line in a small plot: the points of an SVG polyline, and the values that its text for screen readers names.

    y = MARGIN             the largest value
    y = HEIGHT - MARGIN    zero
    x = 0 … WIDTH          the oldest … the newest value

Values are equally spaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT, MARGIN = 120, 24, 2


class Sparkline(NamedTuple):
    """The points of the line, and the newest and the largest value; no points where there are less than two values."""

    points: str
    newest: float
    largest: float


def sparkline(values: Sequence[float]) -> Sparkline:
    """Returns the line of values, the oldest first."""
    if len(values) < 2:
        newest = values[-1] if values else 0.0
        return Sparkline("", newest, newest)
    largest = max(values)
    step, height = WIDTH / (len(values) - 1), HEIGHT - 2 * MARGIN
    scale = height / largest if largest > 0 else 0.0
    points = " ".join(f"{index * step:.1f},{HEIGHT - MARGIN - value * scale:.1f}" for index, value in enumerate(values))
    return Sparkline(points, values[-1], largest)
