"""What the console says of the broker that serves it, and how its process is told."""

import pytest

from millrace_broker.admin.console.own_troubles import (
    MAX_CHARACTERS,
    MAX_HEADER_BYTES,
    MAX_TOLD,
    MEMORY_BYTES,
    STEP_IS_TOLD_MS,
    from_header,
    own_troubles,
    to_header,
)
from millrace_broker.admin.health import Health
from millrace_broker.metrics import ClockStep

WELL = Health((), (), ())
AN_HOUR_AHEAD = ClockStep(3600.0, 5_000)


def test_a_broker_that_is_well_has_none():
    assert own_troubles(WELL, MEMORY_BYTES, None, 0) == []
    assert own_troubles(WELL, 0, AN_HOUR_AHEAD, 5_000 + STEP_IS_TOLD_MS) == []


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ((WELL._replace(not_ready=("the session with ZooKeeper is lost",)), 0, None, 0), "ZooKeeper is lost"),
        ((WELL, 450_000_000, None, 0), "requests and replies take 450 MB of memory: clients do not send them"),
        ((WELL, 0, AN_HOUR_AHEAD, 4_999 + STEP_IS_TOLD_MS), "set forward by 3600.000 s within the last 10 minutes"),
        ((WELL, 0, ClockStep(-2.5, 0), 1), "set back by 2.500 s"),
    ],
    ids=["health", "memory", "clock", "clock back"],
)
def test_each_trouble_is_a_sentence(facts, said):
    (sentence,) = own_troubles(*facts)
    assert said in sentence


@pytest.mark.parametrize("said", [(), ("plain", 'a "quote"\r\nX-Other: header'), ("bröken \N{SNOWFLAKE}", "\udcff")])
def test_a_header_tells_them_as_they_are(said):
    header = to_header(said)
    assert header.isascii()
    assert header.isprintable(), "a name of a folder can't end the header"
    assert from_header(header) == list(said)
    assert from_header(None) is None


def test_a_header_is_bounded_and_says_what_it_leaves_out():
    long = "\N{BUG}" * (2 * MAX_CHARACTERS)
    header = to_header([long] * 20)
    told = from_header(header)
    assert len(header) < MAX_HEADER_BYTES
    assert {len(one) for one in told[:-1]} == {MAX_CHARACTERS}
    assert (len(told), told[-1]) == (MAX_TOLD, "and 5 more, which /readyz tells")
