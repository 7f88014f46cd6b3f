"""Makes HTML of pages: Jinja's templates, which escape all that they show, and the filters for numbers and times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from millrace.times import MAX_DATETIME_MS
from millrace_ops import sizes
from millrace_ops.console.plots import HEIGHT, MARGIN, SPAN_S, WIDTH, plotted
from millrace_ops.console.request import Page

UNKNOWN = "\N{EN DASH}"


class Templates:
    """The console's Jinja templates; `common` are values for every page."""

    def __init__(self, common: dict[str, Any]) -> None:
        self._environment = Environment(
            loader=PackageLoader("millrace_ops.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(
            number=number, size=size, rate=rate, when=when, duration=duration, share=share, link=link
        )
        self._environment.globals.update(
            common, plotted=plotted, plot_width=WIDTH, plot_height=HEIGHT, plot_zero=HEIGHT - MARGIN, plot_s=SPAN_S
        )

    def render(self, page: Page, around: Mapping[str, object]) -> str:
        """Returns the HTML of a page; `around` are the values of what stands around each page, and in its forms."""
        return self._environment.get_template(page.template).render({**page.values, **around})


def number(value: int | None) -> str:
    """Returns a whole number with separators between thousands; UNKNOWN for None."""
    return UNKNOWN if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Returns a number of bytes in a fitting unit; UNKNOWN for None."""
    return UNKNOWN if value is None else sizes.size(value)


def rate(value: float) -> str:
    """Returns a rate in records per second as text, in whole ones from 10 on."""
    return f"{value:,.0f}/s" if value >= 10 or value == 0 else f"{value:.1f}/s"


def when(at_ms: int | None) -> str:
    """Returns a time in UTC with its seconds, or the number where no calendar has it."""
    if at_ms is None:
        return UNKNOWN
    if not 0 <= at_ms <= MAX_DATETIME_MS:
        return str(at_ms)
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def duration(value_ms: int | None) -> str:
    """Returns a duration, given in ms, as text in its two largest units."""
    if value_ms is None:
        return UNKNOWN
    seconds = value_ms // 1000
    for name, below, length in (("d", "h", 86_400), ("h", "min", 3_600), ("min", "s", 60)):
        if seconds >= length:
            rest = seconds % length // (length // (24 if below == "h" else 60))
            return f"{seconds // length} {name}" + (f" {rest} {below}" if rest else "")
    return f"{seconds} s"


def share(value: float | None) -> str:
    """Returns a fraction, from 0 to 1, in percent."""
    return UNKNOWN if value is None else f"{100 * value:.0f} %"


def link(fields: Mapping[str, Any], **changed: Any) -> str:
    """Returns the query string, such as `?page=2`, of the fields with some changed; empty ones are left out."""
    return "?" + urlencode({name: value for name, value in {**fields, **changed}.items() if value not in ("", None)})
