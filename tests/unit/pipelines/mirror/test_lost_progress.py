"""Which progress is made again of the offset map, and how much of it is committed by one request."""

import pytest

from millrace.client.groups import GroupMetadata
from millrace.clock import SystemClock
from millrace_pipelines.mirror.copy import Ids, Portion, Progress
from millrace_pipelines.mirror.lost_progress import KnownProgress, of_map
from millrace_pipelines.mirror.offset_map_topic import LastMapped
from millrace_pipelines.mirror.stops import Mirrored
from millrace_pipelines.mirror.transaction import OFFSETS_PER_REQUEST, Outcome, Transaction

AT_TEN = Progress(10, Ids("s1", "t1"), 3)


@pytest.mark.parametrize(("last", "progress"), [
    (LastMapped(10, 8, AT_TEN.to_map), AT_TEN),
    (LastMapped(10, 9, AT_TEN.to_map), AT_TEN),
    (LastMapped(10, 10, AT_TEN.to_map), None),  # the map of a log that was longer
    (LastMapped(10, 8, None), None),
    (None, None),
])  # fmt: skip
def test_the_newest_record_of_a_map_counts_where_it_fits_the_log(last, progress):
    assert of_map(last, 9) == KnownProgress(progress, is_restored=progress is not None)


class Producer:
    """Takes what a transaction sends, and keeps how many offsets each request has."""

    def __init__(self):
        self.requests = []

    def init_transactions(self):
        pass

    begin_transaction = commit_transaction = init_transactions

    def add_to_transaction(self, partitions):
        pass

    def send_offsets_to_transaction(self, offsets, group):
        self.requests.append(offsets)


@pytest.mark.parametrize("count", [1, OFFSETS_PER_REQUEST, 4 * OFFSETS_PER_REQUEST, 4 * OFFSETS_PER_REQUEST + 1])
def test_the_progress_of_very_many_partitions_is_no_batch_that_a_broker_refuses(count):
    producer = Producer()
    transaction = Transaction("east", lambda: producer, SystemClock(), lambda: False)
    transaction.add({Mirrored("t", "east.t", one): Portion((), AT_TEN) for one in range(count)})
    assert transaction.commit(GroupMetadata("g", 1, "m")).outcome is Outcome.COMMITTED
    assert [place for offsets in producer.requests for place in offsets] == [("east.t", one) for one in range(count)]
    assert max(map(len, producer.requests)) <= OFFSETS_PER_REQUEST
