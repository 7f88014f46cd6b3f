"""With which ledger a table goes on."""

import pytest

from millrace_pipelines.spark.brokers import LogOffsets
from millrace_pipelines.spark.errors import LogTruncatedError, TopicRecreatedError
from millrace_pipelines.warehouse.ledger.ledger import (
    AgreedEnd,
    GivenUp,
    Ledger,
    LedgerEntry,
    agreed_end,
    cut_partitions,
    next_ledger,
)

LEDGER = Ledger("events", "id", {0: LedgerEntry(0, 20, 3), 1: LedgerEntry(0, 5, 3)})


def decide(topic_id="id", ends=((20, 0), (5, 0)), ahead=None, *, recreated=False, truncated=False):
    return next_ledger(
        LEDGER,
        topic_id,
        {partition: AgreedEnd(*end) for partition, end in enumerate(ends)},
        ahead=ahead or {},
        accept_recreated_topic=recreated,
        accept_truncated_log=truncated,
    )


def test_the_present_ledger_goes_on():
    assert decide() is None
    assert decide(ends=((25, 0), (5, 5), (9, 0))) is None


def test_a_new_topic_is_refused_unless_that_is_accepted():
    with pytest.raises(TopicRecreatedError, match=r"its id is new, the table's id.*partition 0: 20, partition 1: 5"):
        decide("new", ())
    change = decide("new", (), recreated=True)
    assert change.ledger == Ledger("events", "new", {})
    assert change.given_up[0] == GivenUp(0, 20, None, "topic recreated")


def test_a_cut_log_is_refused_unless_that_is_accepted():
    with pytest.raises(LogTruncatedError, match=r"partition 0: the log agrees up to offset 12.*up to 19"):
        decide(ends=((12, 12), (5, 0)))
    change = decide(ends=((12, 12), (5, 0)), truncated=True)
    assert change.ledger.partitions == {0: LedgerEntry(12, 12), 1: LedgerEntry(5, 5)}
    assert [entry.leader_epoch for entry in change.ledger.partitions.values()] == [3, 3]
    assert (change.ledger.name, change.given_up) == ("id.1", (GivenUp(0, 12, 20, "log truncated"),))


def test_a_log_is_cut_below_what_was_loaded_or_lies_in_the_dead_letters():
    ends = {0: AgreedEnd(12, 0), 1: AgreedEnd(5, 0)}
    assert cut_partitions(LEDGER, ends, {}) == {0: 20}
    assert cut_partitions(LEDGER, ends, {0: 30, 1: 6}) == {0: 30, 1: 6}
    assert cut_partitions(LEDGER, {0: AgreedEnd(20, 0)}, {}) == {}


def test_dead_letters_ahead_of_a_cut_log_begin_a_ledger_too():
    with pytest.raises(LogTruncatedError, match="up to 29"):
        decide(ahead={0: 30})
    assert decide(ahead={0: 30}, truncated=True).given_up == ()


def test_a_partition_that_is_gone_is_refused_in_any_case():
    with pytest.raises(LogTruncatedError, match="partition 1 is in the table but not in the topic"):
        decide(ends=((20, 0),), truncated=True)


@pytest.mark.parametrize(
    ("log", "epoch_end", "end"),
    [
        (LogOffsets(3, 20), None, AgreedEnd(20, 3)),
        (LogOffsets(3, 20), 20, AgreedEnd(20, 3)),
        (LogOffsets(3, 20), 12, AgreedEnd(12, 12)),
        (LogOffsets(3, 15, 20), None, AgreedEnd(20, 3)),
        (LogOffsets(3, 15), 20, AgreedEnd(20, 3)),  # the high watermark is not at the log's end yet
    ],
)
def test_a_newer_leader_epoch_says_where_a_log_was_cut(log, epoch_end, end):
    assert agreed_end(log, epoch_end) == end


def test_a_newer_epoch_says_where_the_log_was_cut_though_it_has_not_grown():
    assert agreed_end(LogOffsets(3, 10), 10, has_newer_epoch=True) == AgreedEnd(10, 10)


def test_a_leader_of_an_older_epoch_agrees_on_nothing():
    assert agreed_end(LogOffsets(3, 20), None, has_older_epoch=True) == AgreedEnd(3, 3)
