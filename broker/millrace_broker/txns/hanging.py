"""Hanging transactions are open in a partition, but unknown to the coordinator (KIP-664, KIP-890).

They never end, so readers of committed records stop where they begin, and compaction too. They come from brokers that
did not check whether a partition had been added to its transaction. `kafka-transactions abort` ends them.

    partition's log     [ batch of producer 7 ][ … ]              no marker of 7 behind it
    __transaction_state of the same data folder                   no transaction of 7 with this partition

This reads files that no broker has open. In a cluster other brokers may have the states: there `kafka-transactions
find-hanging` asks all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from millrace.errors import RecordError
from millrace.fs import FileSystem
from millrace.internal_topics import TRANSACTION_TOPIC
from millrace.records.record import decode_batch
from millrace_broker.storage import TopicPartition
from millrace_broker.storage.batches.scan import Placed, scan_headers
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import LOG_SUFFIX, parse_partition_dir
from millrace_broker.storage.reports import LogFinding
from millrace_broker.txns.records import read_key, read_value
from millrace_broker.txns.state import OPEN, TransactionMetadata

Known = set[tuple[int, TopicPartition]]


class _Begin(NamedTuple):
    """The place of a transaction's first batch, and the producer's epoch."""

    file: str
    position: int
    offset: int
    epoch: int


def find_hanging(fs: FileSystem, logs: Sequence[str]) -> list[LogFinding]:
    """Returns a finding for each open transaction that no coordinator's log in its data folder has.

    Such a transaction never ends. Only partitions whose last `.log` is among `logs` are searched. What is behind damage
    in a file is not read.

    Raises:
        StorageError: a file can't be read.
    """
    found: list[LogFinding] = []
    known: dict[str, Known] = {}
    for folder in sorted({os.path.dirname(os.path.abspath(log)) for log in logs}):
        partition = parse_partition_dir(os.path.basename(folder))
        segments = _segments(fs, folder)
        if partition is None or not segments or segments[-1] not in map(os.path.abspath, logs):
            continue
        begins = _open_transactions(fs, segments)
        if begins:
            data_dir = os.path.dirname(folder)
            if data_dir not in known:
                known[data_dir] = _known_transactions(fs, data_dir)
            found += _findings(partition, begins, known[data_dir])
    return found


def _findings(partition: TopicPartition, begins: dict[int, _Begin], known: Known) -> Iterator[LogFinding]:
    for producer_id, begin in begins.items():
        if (producer_id, partition) not in known:
            reason = (
                f"a hanging transaction begins: producer {producer_id}, epoch {begin.epoch}, offset {begin.offset} of "
                f"{partition}; no transaction of {TRANSACTION_TOPIC} here has it"
            )
            yield LogFinding(file=begin.file, position=begin.position, reason=reason)


def _open_transactions(fs: FileSystem, segments: Iterable[str]) -> dict[int, _Begin]:
    """Returns the first batch of each transaction that is open at the end of a log, by producer id."""
    begins: dict[int, _Begin] = {}
    for file in segments:
        for position, header in _headers(fs, file):
            if header.is_control:
                begins.pop(header.producer_id, None)
            elif header.is_transactional:
                begin = _Begin(file, position, header.base_offset, header.producer_epoch)
                begins.setdefault(header.producer_id, begin)
    return begins


def _known_transactions(fs: FileSystem, data_dir: str) -> Known:
    """Returns (producer id, partition) of the open transactions in a data folder's logs of `__transaction_state`."""
    kept: dict[str, TransactionMetadata | None] = {}
    for name in fs.listdir(data_dir):
        partition = parse_partition_dir(name)
        if partition is not None and partition.topic == TRANSACTION_TOPIC:
            for file in _segments(fs, os.path.join(data_dir, name)):
                kept.update(_states(fs, file))
    return {
        (one.producer_id, partition)
        for one in kept.values()
        if one is not None and one.state in OPEN
        for partition in one.partitions
    }


def _states(fs: FileSystem, file: str) -> Iterator[tuple[str, TransactionMetadata | None]]:
    fd = fs.open(file)
    try:
        for position, header in scan_headers(fs, fd, 0, fs.size(fd)):
            if not header.is_control:
                for record in decode_batch(header, memoryview(fs.pread(fd, header.size_bytes, position))):
                    transactional_id = read_key(record.key or b"")
                    if transactional_id is not None:
                        yield transactional_id, None if record.value is None else read_value(record.value)
    except RecordError:
        return
    finally:
        fs.close(fd)


def _headers(fs: FileSystem, file: str) -> Iterator[Placed]:
    with storage_errors(file):
        fd = fs.open(file)
        try:
            yield from scan_headers(fs, fd, 0, fs.size(fd))
        except RecordError:
            return
        finally:
            fs.close(fd)


def _segments(fs: FileSystem, folder: str) -> list[str]:
    with storage_errors(folder):
        return sorted(os.path.join(folder, name) for name in fs.listdir(folder) if name.endswith(LOG_SUFFIX))
