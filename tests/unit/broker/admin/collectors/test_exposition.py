"""Prometheus' text of small and large families, and that other work has its turn while it is written."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from millrace.clock import SystemClock
from millrace_broker.admin.collectors.families import (
    ROWS_AT_ONCE,
    LargeFamily,
    counter,
    escaped,
    exposition,
    histograms,
    in_slices,
)
from millrace_broker.metrics import Durations
from millrace_support.clock import ManualClock

GROUP = 'a"b\\n\n'
MANY = 5 * ROWS_AT_ONCE + 1


def parsed(families):
    return {one.name: one for one in text_string_to_metric_families(b"".join(exposition(families)).decode())}


def test_a_large_family_reads_like_a_small_one():
    rows = [f'{{group="{escaped(GROUP)}{number}"}} {number}' for number in range(MANY)]
    found = parsed([counter("small", "Small.", 3), LargeFamily("millrace_large", "Large.", "counter", rows)])
    assert found["millrace_small"].samples[0].value == 3
    large = found["millrace_large"]
    assert (large.type, large.documentation, len(large.samples)) == ("counter", "Large.", MANY)
    assert large.samples[7].name == "millrace_large_total"
    assert (large.samples[7].labels, large.samples[7].value) == ({"group": f"{GROUP}7"}, 7)


def test_a_histogram_counts_up_to_each_bound():
    durations = Durations((0.1, 1.0))
    for seconds, times in ((0.1, 2), (0.5, 1), (7.0, 3)):
        durations.observe(seconds, times)
    found = parsed([histograms("times", "Times.", ["api"], {("fetch",): durations})])["millrace_times"]
    values = {(one.name.removeprefix("millrace_times_"), one.labels.get("le")): one.value for one in found.samples}
    assert values == {
        ("bucket", "0.1"): 2, ("bucket", "1.0"): 3, ("bucket", "+Inf"): 6, ("count", None): 6,
        ("sum", None): 2 * 0.1 + 0.5 + 3 * 7.0,
    }  # fmt: skip


def test_whatever_waits_for_the_event_loop_has_its_turn_between_pieces():
    clock = ManualClock()

    def pieces():
        for _ in range(10):
            clock.advance(2)
            yield b"x"

    async def scrape():
        turns = []
        asyncio.get_running_loop().call_soon(turn, turns)
        text = await in_slices(pieces(), clock)
        return text, len(turns)

    def turn(turns):
        turns.append(clock.monotonic_ms())
        asyncio.get_running_loop().call_soon(turn, turns)

    assert asyncio.run(scrape()) == (b"x" * 10, 10)


def test_without_pieces_there_is_no_text():
    assert asyncio.run(in_slices((), SystemClock())) == b""
