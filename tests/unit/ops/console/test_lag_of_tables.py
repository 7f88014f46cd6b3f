"""The lag of a table, from its ledger and from what was last seen of the cluster."""

from uuid import UUID

from millrace.client.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from millrace_ops.console.overview import Overview, total_lag
from millrace_ops.console.pages.tables import lag_of
from millrace_pipelines.warehouse.ledger.ledger import Ledger, LedgerEntry

TOPIC_ID = UUID(int=7)
LEDGER = Ledger("events", str(TOPIC_ID), {0: LedgerEntry(0, 10)})


def overview(ends, topic_id=TOPIC_ID):
    partition = PartitionMetadata(1, 0, (1,), (1,))
    topic = TopicMetadata("events", topic_id, 0, {0: partition, 1: partition})
    return Overview(0, ClusterMetadata(None, 1, {}, {"events": topic}), {}, ends)


def test_what_the_table_lacks_of_each_partition_is_its_lag():
    lags = lag_of(LEDGER, overview({("events", 0): 12, ("events", 1): 5}))
    assert (lags, total_lag(lags.values())) == ({0: 2, 1: 5}, 7)


def test_a_table_that_is_ahead_of_the_last_look_lacks_nothing():
    assert total_lag(lag_of(LEDGER, overview({("events", 0): 9, ("events", 1): 0})).values()) == 0


def test_the_lag_is_unknown_while_a_partition_has_no_leader_that_tells():
    lags = lag_of(LEDGER, overview({("events", 0): 12}))
    assert (lags, total_lag(lags.values())) == ({0: 2, 1: None}, None)


def test_a_topic_that_was_made_again_has_no_lag_of_the_table():
    assert lag_of(LEDGER, overview({}, UUID(int=8))) is None
    assert total_lag([]) is None
