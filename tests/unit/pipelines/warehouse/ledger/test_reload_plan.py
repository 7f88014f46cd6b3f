"""What a reload reads: the requested range, cut where the table and the logs begin and end."""

import pytest

from millrace_pipelines.spark.brokers import LogOffsets
from millrace_pipelines.spark.errors import OffsetsLostError
from millrace_pipelines.warehouse.errors import ModeError
from millrace_pipelines.warehouse.ledger.ledger import Ledger, LedgerEntry
from millrace_pipelines.warehouse.ledger.plan import LostRange, OffsetRange, RequestedRange, plan_reload

LEDGER = Ledger("events", "id", {0: LedgerEntry(100, 200)})


def plan(requested, start=0, end=300, ledger=LEDGER, **how):
    return plan_reload(ledger, {0: LogOffsets(start, end)}, {0: requested}, **how)


def test_a_reload_is_cut_where_the_table_begins_and_ends():
    made = plan(RequestedRange(50, None))
    assert made.earlier == (OffsetRange(0, 50, 100),)
    assert made.replaced == (OffsetRange(0, 100, 200),)
    assert made.following == {0: LedgerEntry(50, 200)}
    assert plan(RequestedRange(150, 180)).ranges == (OffsetRange(0, 150, 180),)
    assert plan(RequestedRange(250, None)).ranges == ()
    assert plan(RequestedRange(None, 100)).earlier == (OffsetRange(0, 0, 100),)


def test_a_new_table_begins_with_the_range_and_others_where_their_logs_do():
    log = {0: LogOffsets(5, 50), 1: LogOffsets(7, 70)}
    made = plan_reload(Ledger("events", "id", {}), log, {1: RequestedRange(20, 30)})
    assert made.earlier == (OffsetRange(1, 20, 30),)
    assert made.following == {0: LedgerEntry(5, 5), 1: LedgerEntry(20, 30)}


def test_what_can_t_be_reloaded_is_said():
    with pytest.raises(OffsetsLostError, match="partition 0: 90-119"):
        plan(RequestedRange(90, 150), start=120)
    made = plan(RequestedRange(90, 150), start=120, accept_lost_offsets=True)
    assert (made.ranges, made.earlier) == ((OffsetRange(0, 120, 150),), ())
    assert made.lost == (LostRange(0, 90, 120, "retention"),)
    with pytest.raises(ModeError, match="begins at offset 100, the range ends at 90"):
        plan(RequestedRange(50, 90))
    with pytest.raises(ModeError, match="no partition 3"):
        plan_reload(LEDGER, {0: LogOffsets(0, 300)}, {3: RequestedRange(None, None)})
