"""Offsets of open transactions: what an end costs does not depend on how many others are open."""

from millrace_broker.groups.offsets import Offsets, TransactionalOffsets
from millrace_broker.groups.records import CommittedOffset, OffsetKey, offset_record

MANY = 1000


class Counted(OffsetKey):
    """Counts how often it is looked for."""

    looks = 0

    def __hash__(self):
        Counted.looks += 1
        return super().__hash__()


def test_a_newer_offset_does_not_ask_every_open_transaction():
    offsets = Offsets()
    pending = TransactionalOffsets(offsets)
    key = Counted("g", "events", 0)
    record = offset_record(key, CommittedOffset(1))
    for producer_id in range(MANY):
        pending.add(producer_id, OffsetKey("g", "events", 1 + producer_id), record)
    for producer_id in (MANY, MANY + 1):
        pending.add(producer_id, key, record)
    Counted.looks = 0
    assert pending.end(MANY + 1, is_commit=True) == [record]
    assert not offsets.is_pending(key)
    assert pending.end(MANY, is_commit=True) == []  # its offset came before
    pending.supersede(key)
    assert Counted.looks < 50
    for producer_id in range(MANY):
        assert pending.end(producer_id, is_commit=False) == []
    assert not pending
    assert not pending.keys_of("g")
