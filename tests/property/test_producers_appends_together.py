"""Batches of producers come to the same whether their requests are handled together or one by one."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millrace.config import MAX_INT
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import NO_PRODUCER, BatchProducer, NewRecord, encode_batch
from millrace_broker.storage import AppendOutcome, Log, LogConfig, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.markers import append_marker

FOLDER = "/data/t-0"
FIRST_SEQUENCE = MAX_INT - 6  # sequences begin again at 0 on the way
STEPS = (0, 0, 0, 0, 0, 0, -1, -2, 1)  # from the sequence that is expected: mostly it, else a repetition or a gap

batches = st.tuples(
    st.sampled_from((7, 7, 7, 7, 8, -1)),
    st.sampled_from((0, 0, 0, 0, 0, 1)),
    st.sampled_from(STEPS),
    st.integers(1, 3),
    st.sampled_from((0, 0, 0, TRANSACTIONAL_FLAG)),
    st.sampled_from((False, False, False, True)),
)
turns = st.lists(st.one_of(st.lists(batches, min_size=1, max_size=12), st.just("marker")), max_size=6)


class Senders:
    """Makes the bytes: each producer goes on from what it sent last in the epoch, or wrongly in the other one."""

    def __init__(self) -> None:
        self.expected: dict[tuple[int, int], int] = {(7, 0): FIRST_SEQUENCE, (8, 0): FIRST_SEQUENCE}

    def batch(self, producer_id: int, epoch: int, step: int, count: int, flags: int, *, crosses: bool) -> bytes:
        records = [NewRecord(b"value", timestamp_ms=1000)] * count
        if producer_id < 0:
            return encode_batch(records, producer=NO_PRODUCER)
        sequence = (self.expected.get((producer_id, 1 - epoch if crosses else epoch), 0) + step) & MAX_INT
        self.expected[producer_id, epoch] = (sequence + count) & MAX_INT
        return encode_batch(records, producer=BatchProducer(producer_id, epoch, sequence), flags=flags)


def open_log() -> Log:
    fs = CrashFileSystem()
    fs.mkdir(FOLDER)
    return Log(fs, ManualClock(), FOLDER, TopicPartition("t", 0), LogConfig(segment_bytes=2000, retention_ms=-1))


def told(outcomes: Sequence[AppendOutcome]) -> list[Any]:
    return [one if isinstance(one, tuple) else (type(one), str(one)) for one in outcomes]


def all_bytes(log: Log) -> bytes:
    return b"".join(log.read(each.base_offset, 1 << 20, up_to_offset=log.log_end_offset) for each in log.segments)


@given(turns)
def test_producers_fare_alike_together_and_one_by_one(turns: list[Any]) -> None:
    together, alone, senders = open_log(), open_log(), Senders()
    for turn in turns:
        if turn == "marker":
            marker = EndTransactionMarker(ControlType.ABORT, 0)
            for log in (together, alone):
                epoch = max(0, log.producers.entries[7].epoch) if 7 in log.producers.entries else 0
                append_marker(log, marker, producer_id=7, producer_epoch=epoch, leader_epoch=0)
            continue
        appends = [senders.batch(*one, crosses=crosses) for *one, crosses in turn]
        outcomes = told(together.append_all(appends, leader_epoch=0))
        assert outcomes == told([outcome for one in appends for outcome in alone.append_all([one], leader_epoch=0)])
    assert together.producers.entries == alone.producers.entries
    assert together.last_stable_offset(together.log_end_offset) == alone.last_stable_offset(alone.log_end_offset)
    assert all_bytes(together) == all_bytes(alone)
