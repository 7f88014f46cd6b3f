"""Templates escape what they show, and filters say numbers as people read them."""

import pytest

from millrace.client.metadata import ClusterMetadata
from millrace_ops.console.overview import Overview
from millrace_ops.console.pages.jobs import part_done
from millrace_ops.console.plots import Rate
from millrace_ops.console.rendering import Templates, duration, link, number, rate, share, size, when
from millrace_ops.console.request import Page

COMMON = {"version": "1", "has_login": True, "may_change": True, "has_tables": True}
AROUND = {"is_live": False, "form_token": ""}
HOSTILE = "\"><script>alert('x')</script>"


def test_what_is_shown_is_escaped():
    html = Templates(COMMON).render(
        Page("error.html", {"title": HOSTILE, "sentence": HOSTILE}), {**AROUND, "form_token": HOSTILE}
    )
    assert "<script>alert" not in html
    assert html.count("&lt;script&gt;") == 4, "the titles of page and window, the sentence, the form's token"


def test_every_template_compiles():
    environment = Templates(COMMON)._environment
    names = environment.list_templates()
    assert "topics.html" in names
    for name in names:
        environment.get_template(name)


@pytest.mark.parametrize(("troubles", "said"), [((), "Well."), ((HOSTILE,), "&lt;script&gt;")])
def test_the_brokers_page_says_what_ails_the_broker_that_serves_it(troubles, said):
    totals = dict.fromkeys(("topics", "partitions", "under_replicated", "offline"), 0) | {"rates": ()}
    overview = Overview(0, ClusterMetadata("c", 1, {}, {}), {})
    values = {"rows": (), "absent": (), "overview": overview, "totals": totals}
    html = Templates(COMMON).render(Page("brokers.html", {**values, "own_troubles": troubles}), AROUND)
    assert said in html
    assert "<script>alert" not in html
    html = Templates(COMMON).render(Page("brokers.html", {**values, "own_troubles": None}), AROUND)
    assert "This broker" not in html, "which has not told"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (number(1234567), "1,234,567"),
        (size(0), "0 B"),
        (size(1536), "1.5 KiB"),
        (rate(0.0), "0/s"),
        (rate(0.25), "0.2/s"),
        (rate(1234.5), "1,234/s"),
        (when(0), "1970-01-01 00:00:00"),
        (when(-1), "-1"),
        (when(2**62), str(2**62)),
        (duration(999), "0 s"),
        (duration(61_000), "1 min 1 s"),
        (duration(600_000), "10 min"),
        (duration(3_720_000), "1 h 2 min"),
        (duration(90_000_000), "1 d 1 h"),
        (share(0.256), "26 %"),
        (link({"a": "x&y", "b": "", "c": None}, d=1), "?a=x%26y&d=1"),
    ],
)
def test_numbers_and_times_are_written_for_people(said, text):
    assert said == text


def test_what_is_unknown_has_a_dash():
    assert {number(None), size(None), when(None), duration(None), share(None)} == {"\N{EN DASH}"}


def test_a_plot_has_a_scale_that_is_read_and_spoken():
    template = Templates(COMMON)._environment.from_string(
        '{% from "macros.html" import plot with context %}{{ plot(rates, "Records per second", true) }}'
    )
    html = template.render(rates=[Rate(10.0, 1234.0), Rate(0.0, 7.5)])
    assert "<span>1,234/s</span><span>0</span>" in html
    assert "<span>10 min ago</span><span>now</span>" in html
    assert 'aria-label="Records per second, the last 10 min: now 7.5/s, at most 1,234/s"' in html


def test_a_move_is_as_far_as_its_slowest_copy():
    assert part_done([100, 25], 100) == 0.25
    assert part_done([0], 0) == 1.0
    assert part_done([120], 100) == 1.0, "the leader's segments may be deleted meanwhile"
    assert part_done([], 100) is None
    assert part_done([1], None) is None
