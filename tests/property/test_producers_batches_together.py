"""Batches of producers that come together have the outcomes that the rules give to one after the other."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace.config import MAX_INT
from millrace.errors import ProducerError
from millrace.records.batch import NO_PRODUCER_ID, TRANSACTIONAL_FLAG, read_header
from millrace.records.compression import Codec
from millrace.records.record import NO_PRODUCER, BatchProducer, NewRecord, encode_batch
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_broker.storage.producers.producer_state import ProducerEntry, check_batch, find_duplicate, with_batch
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

NOW_MS = 1_700_000_000_000
FOLDER = "/data/t-0"
SEQUENCES = (0, 1, 2, 3, MAX_INT - 1, MAX_INT)


def batch(producer=7, epoch=0, sequence=0, count=1, *, flags=0, codec=Codec.NONE):
    records = [NewRecord(b"value", timestamp_ms=NOW_MS)] * count
    return encode_batch(records, producer=BatchProducer(producer, epoch, sequence), flags=flags, codec=codec)


PLAIN = st.builds(lambda count: encode_batch([NewRecord(b"plain", timestamp_ms=NOW_MS)] * count), st.integers(1, 2))
OF_PRODUCERS = st.builds(
    batch,
    st.sampled_from((7, 8)),
    st.integers(0, 1),
    st.sampled_from(SEQUENCES),
    st.integers(1, 2),
    flags=st.sampled_from((0, 0, 0, TRANSACTIONAL_FLAG)),
    codec=st.sampled_from((Codec.NONE, Codec.NONE, Codec.GZIP)),
)


def open_log(time):
    """Not empty: a segment's first write takes what comes first alone."""
    fs = CrashFileSystem()
    fs.mkdir(FOLDER)
    log = Log(fs, ManualClock(NOW_MS), FOLDER, TopicPartition("t", 0), LogConfig(message_timestamp_type=time))
    log.append(encode_batch([NewRecord(b"first", timestamp_ms=NOW_MS)]), leader_epoch=0)
    return log


class Rules:
    """What `producer_state` says of each batch, one after the other."""

    def __init__(self, end_offset):
        self.end_offset = end_offset
        self.entries = {}

    def outcome(self, content):
        """(first offset, last offset), or the error."""
        header = read_header(content)
        entry = self.entries.get(header.producer_id, ProducerEntry(header.producer_id))
        if header.producer_id != NO_PRODUCER_ID:
            if repeated := find_duplicate(entry, header):
                return repeated.first_offset, repeated.last_offset
            try:
                check_batch(entry, header)
            except ProducerError as error:
                return str(error)
            self.entries[header.producer_id] = with_batch(entry, header, self.end_offset)
        self.end_offset += header.record_count
        return self.end_offset - header.record_count, self.end_offset - 1

    @property
    def last_stable_offset(self):
        open_transactions = [one.transaction_first_offset for one in self.entries.values() if one.has_open_transaction]
        return min(open_transactions, default=self.end_offset)


def outcome_of(one):
    return str(one) if isinstance(one, ProducerError) else (one.first_offset, one.last_offset)


@pytest.mark.parametrize("time", ["CreateTime", "LogAppendTime"])
@given(rounds=st.lists(st.lists(st.one_of(OF_PRODUCERS, PLAIN), max_size=8), max_size=4))
@example(rounds=[[batch(sequence=0), batch(sequence=2)]])
@example(rounds=[[batch(sequence=0), batch(producer=8, sequence=1), batch(sequence=1)]])
@example(rounds=[[batch(sequence=0), batch(epoch=1, sequence=1)]])
@example(rounds=[[batch(sequence=0), batch(sequence=1, flags=TRANSACTIONAL_FLAG), batch(sequence=2)]])
@example(rounds=[[batch(sequence=MAX_INT), batch(sequence=0), batch(sequence=1)]])
@example(rounds=[[batch(sequence=0), encode_batch([NewRecord(b"plain")], producer=NO_PRODUCER), batch(sequence=1)]])
@example(rounds=[[batch(sequence=0)], [batch(sequence=1)], [batch(producer=8, sequence=2), batch(sequence=2)]])
@example(rounds=[[batch(sequence=0)], [batch(sequence=1)], [batch(sequence=1)]])
def test_outcomes_are_those_of_one_after_the_other(time, rounds):
    log = open_log(time)
    rules = Rules(log.log_end_offset)
    for batches in rounds:
        outcomes = [outcome_of(one) for one in log.append_all(batches, leader_epoch=0)]
        assert outcomes == [rules.outcome(one) for one in batches]
        assert log.log_end_offset == rules.end_offset
        assert log.producers.entries == rules.entries
        assert log.last_stable_offset(log.log_end_offset) == rules.last_stable_offset
    assert log.verify().findings == ()
