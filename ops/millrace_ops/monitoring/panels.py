"""What a dashboard is made of."""

from __future__ import annotations

from typing import Literal, NamedTuple

RATE = "$__rate_interval"
HERE = 'instance=~"$instance"'


class Panel(NamedTuple):
    """Queries in PromQL, each with the legend of its lines, that are drawn in one place.

    `unit` is one of Grafana's names of units. A `stat` shows the newest value alone. A stat with `limit` is red from
    that value on. The axis begins at `minimum`, or, where that is None, where the values do.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    limit: float | None = None
    minimum: float | None = 0


class Section(NamedTuple):
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


class Dashboard(NamedTuple):
    """A dashboard; `uid` is its name in Grafana's addresses. Its instances are those of the metric `instances_of`."""

    uid: str
    title: str
    instances_of: str
    sections: tuple[Section, ...]


def line(
    title: str,
    unit: str,
    query: str,
    legend: str,
    *,
    kind: Literal["timeseries", "table"] = "timeseries",
    minimum: float | None = 0,
) -> Panel:
    """Returns a panel of one query."""
    return Panel(title, unit, ((query, legend),), kind, minimum=minimum)


def lines(title: str, unit: str, *queries: tuple[str, str]) -> Panel:
    """Returns a panel of several queries."""
    return Panel(title, unit, queries)


def rate(metric: str, labels: str = HERE) -> str:
    """Returns the query for the growth of a counter per second."""
    return f"rate({metric}{{{labels}}}[{RATE}])"


def quantile(share: float, histogram: str, *by: str, labels: str = HERE) -> str:
    """Returns the query for a quantile of the durations of a histogram: this share of them lies below it."""
    kept = ", ".join(("le", *by))
    return f"histogram_quantile({share}, sum by ({kept}) ({rate(f'{histogram}_bucket', labels)}))"
