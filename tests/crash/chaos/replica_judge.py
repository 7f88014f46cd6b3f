"""Compares the replicas of all partitions by the files of the brokers, and shares no code with their storage.

Batches are read by aiokafka's decoder, which compares each CRC. Replicas roll by themselves, so segments may begin at
different offsets: the bytes of all batches are the same, one after the other. Where the policy is
compact, each replica compacts in its own time: the newest committed value of each key is the same.
"""

import struct
from collections import defaultdict

from aiokafka.record.memory_records import MemoryRecords

COMPACTED = ("table", "latest", "__consumer_offsets", "__transaction_state")
LEFT_BY_DAMAGE = ("damaged-ranges", "repaired-ranges", "*.damaged")
HEADER = struct.Struct(">qi")  # base offset, and the length of what follows
CONTROL = struct.Struct(">hh")  # the key of a control record: version, and 0 for an abort
ABORT = 0


def replica_findings(folders):
    """Yields a sentence for each difference between the data directories, which are given by broker."""
    names = {path.parent.name for folder in folders.values() for path in folder.glob("*-*/*.log")}
    for name in sorted(name for name in names if not name.endswith("-delete")):
        yield from partition_findings(name, {broker: folder / name for broker, folder in folders.items()})
    for broker, folder in folders.items():
        for pattern in LEFT_BY_DAMAGE:
            for path in sorted(folder.glob(f"*-*/{pattern}")):
                yield f"{path.relative_to(folder)} of broker {broker} is left of damage"


def partition_findings(name, folders):
    """Yields a sentence for each difference between the replicas of a partition."""
    replicas = {}
    for broker, folder in folders.items():
        try:
            replicas[broker] = list(batches(folder))
        except ValueError as error:
            yield f"{name} of broker {broker}: {error}"
            return
    if name.rpartition("-")[0] in COMPACTED:
        yield from differences(name, {broker: newest(each) for broker, each in replicas.items()})
    else:
        yield from differences(name, {broker: {at: raw for at, raw, _ in each} for broker, each in replicas.items()})


def differences(name, replicas):
    """Yields a sentence for each broker's dict that differs from that of the first broker."""
    first, *others = sorted(replicas)
    for broker in others:
        one, other = replicas[first], replicas[broker]
        differing = [key for key in {**one, **other} if one.get(key) != other.get(key)]
        if differing:
            shown = f"{differing[0]}: {one.get(differing[0])} and {other.get(differing[0])}"
            yield f"{name}: brokers {first} and {broker} differ in {len(differing)} places, such as {shown}"


def batches(folder):
    """Yields (base offset, bytes, batch) of all batches of a log's files; raises ValueError for what is none."""
    end = None
    files = sorted(folder.glob("*.log"))
    if not files:
        raise ValueError(f"{folder} has no segment")
    for path in files:
        content, position = path.read_bytes(), 0
        while position < len(content):
            base, size = HEADER.unpack_from(content.ljust(position + HEADER.size, b"\0"), position)
            raw = content[position : position + HEADER.size + size]
            batch = MemoryRecords(raw).next_batch()
            if batch is None or not batch.validate_crc():
                raise ValueError(f"no valid batch at {position} of {path}, of {len(content)} bytes")
            if end is not None and base < end:
                raise ValueError(f"offset {base} at {position} of {path}, after {end}")
            yield base, raw, batch
            position, end = position + len(raw), batch.next_offset


def newest(found):
    """Returns the newest committed value of each key; a tombstone is as good as no value."""
    open_transactions, values = defaultdict(list), {}
    for _, _, batch in found:
        records = [(one.offset, one.key, one.value) for one in batch]
        if batch.is_control_batch:
            ended = open_transactions.pop(batch.producer_id, [])
            records = [] if CONTROL.unpack(records[0][1])[1] == ABORT else ended
        elif batch.is_transactional:
            open_transactions[batch.producer_id] += records
            continue
        for offset, key, value in records:
            if offset >= values.get(key, (-1,))[0]:
                values[key] = offset, value
    return {key: value for key, (_, value) in values.items() if value is not None}
