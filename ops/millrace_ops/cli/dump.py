"""`millrace dump`: shows what the files of a log hold. It only reads them, and needs no broker.

    .log        a line for each batch, and with --records one for each record; those of __consumer_offsets and
                __transaction_state are decoded, by the folder's name or as --offsets-decoder and
                --transaction-log-decoder say
    .index      a line for each entry: last offset of a batch, position of the batch
    .timeindex  a line for each entry: largest timestamp so far, offset up to which that holds
    .txnindex   a line for each aborted transaction
    .snapshot   a line for each producer

After a wrong CRC the dump goes on with the next batch; where there is no batch or entry, it ends. Each damage has a
line that gives the exact position and says what is wrong.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.errors import CorruptRecordError, InvalidConfigError, RecordError, UnsupportedCodecError
from millrace.fs import FileSystem, OsFileSystem
from millrace.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from millrace.json_values import JsonObject, JsonValue
from millrace_ops.cli.options import Json
from millrace_ops.cli.output import iso_time, print_json
from millrace_ops.record_values.shown import json_bytes, json_value

if TYPE_CHECKING:
    from millrace.records.batch import BatchHeader
    from millrace.records.record import Record

Line = JsonObject
ShowRecord = Callable[["Record"], Line]
Entry = tuple[int, int]

ENTRIES_CHUNK = 8192


class ReadOnlyFileSystem(OsFileSystem):
    """A file system for reading: it needs no right to write, and creates nothing."""

    def open(self, path: str, *, create: bool = False) -> int:
        """Opens a file for reading; refuses `create`."""
        if create:
            raise PermissionError(f"{path}: read only")
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def lock(self, fd: int) -> None:
        """Takes the locks that keep writers away, as far as a descriptor for reading can."""
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


def dump(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Files NNN.log, NNN.index, NNN.timeindex, NNN.txnindex, NNN.snapshot."),
    ],
    records: Annotated[bool, typer.Option("--records", help="Show the records inside the batches too.")] = False,
    transactions: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="Show the records of __transaction_state, decoded.")
    ] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets-decoder", help="Show the records of __consumer_offsets, decoded.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what lies in the files of a log.

    Batches of segments, entries of their indexes, producers, aborted transactions; exit status 1 if one is damaged.
    """
    if transactions and offsets:
        raise typer.BadParameter("--transaction-log-decoder and --offsets-decoder are for different topics")
    damaged = False
    chosen = transaction_of if transactions else group_record_of if offsets else None
    for file in files:
        if not as_json:
            print(file)
        for line in lines_of(file, chosen or (decoder_of(file) if records else None)):
            damaged = damaged or "damage" in line
            print_json({"file": str(file), **line}) if as_json else print(_text(line))
    raise typer.Exit(int(damaged))


def decoder_of(file: Path) -> ShowRecord:
    """Returns the function that decodes the records of a file, by the topic in its folder's name."""
    from millrace_broker.storage.filenames import parse_partition_dir

    partition = parse_partition_dir(file.absolute().parent.name)
    return _record if partition is None else DECODERS.get(partition.topic, _record)


def lines_of(file: Path, show_record: ShowRecord | None) -> Iterator[Line]:
    """Yields the lines to print of a file, records by `show_record`; damage is a line with `position` and `damage`."""
    from millrace_broker.storage.filenames import (
        LOG_SUFFIX,
        OFFSET_INDEX_SUFFIX,
        TIME_INDEX_SUFFIX,
        parse_segment_file_name,
        parse_snapshot_file_name,
    )

    if parse_snapshot_file_name(file.name) is not None:
        yield from snapshot_lines(file.read_bytes())
        return
    name = parse_segment_file_name(file.name)
    if name is None:
        suffixes = ".log, .index, .timeindex, .txnindex or .snapshot"
        raise InvalidConfigError(f"{file}: not a file of a log (20 digits and {suffixes})")
    base_offset, suffix = name
    fs = ReadOnlyFileSystem()
    fd = fs.open(str(file))
    try:
        if suffix == LOG_SUFFIX:
            yield from _batches(fs, fd, show_record)
        elif suffix == OFFSET_INDEX_SUFFIX:
            yield from _offset_index(fs, fd, base_offset)
        elif suffix == TIME_INDEX_SUFFIX:
            yield from _time_index(fs, fd, base_offset)
        else:
            yield from transaction_index_lines(fs.pread(fd, fs.size(fd), 0), base_offset)
    except OSError as error:
        error.filename = str(file)  # a descriptor's error has no name
        raise
    finally:
        fs.close(fd)


def _batches(fs: FileSystem, fd: int, show_record: ShowRecord | None) -> Iterator[Line]:
    from millrace.records.record import decode_batch
    from millrace_broker.storage.batches.scan import walk_batches

    end = 0
    try:
        for position, header, crc_holds in walk_batches(fs, fd, fs.size(fd)):
            end = position
            yield _batch(position, header, crc_holds)
            if not crc_holds:
                yield _damage(position, f"CRC-32C of the batch at offset {header.base_offset} is wrong")
            elif show_record is not None:
                # A marker's record is no record of its topic.
                records = decode_batch(header, memoryview(fs.pread(fd, header.size_bytes, position)))
                yield from map(_record if header.is_control else show_record, records)
            end = position + header.size_bytes
    except RecordError as error:
        yield _damage(end, str(error))


def _batch(position: int, header: BatchHeader, crc_holds: bool) -> Line:
    return {
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size_bytes": header.size_bytes,
        "codec": _codec_name(header.codec_id),
        "crc": "ok" if crc_holds else "wrong",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
    }


def _record(record: Record) -> Line:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
    }


def _offset_index(fs: FileSystem, fd: int, base_offset: int) -> Iterator[Line]:
    from millrace_broker.storage.segments.indexes import OffsetIndex

    for number, (relative_offset, position) in enumerate(_entries(fs, fd, OffsetIndex.ENTRY)):
        yield {"entry": number, "offset": base_offset + relative_offset, "log_position": position}
    yield from _index_damage(fs, fd, OffsetIndex.ENTRY)


def _time_index(fs: FileSystem, fd: int, base_offset: int) -> Iterator[Line]:
    from millrace_broker.storage.segments.indexes import TimeIndex

    for number, (timestamp, relative_offset) in enumerate(_entries(fs, fd, TimeIndex.ENTRY)):
        yield {"entry": number, "max_timestamp": timestamp, "offset": base_offset + relative_offset}
    yield from _index_damage(fs, fd, TimeIndex.ENTRY)


def _entries(fs: FileSystem, fd: int, entry: struct.Struct) -> Iterator[Entry]:
    """Yields the entries of an index file, each of the binary form `entry`; an incomplete last one is left out."""
    whole = fs.size(fd) // entry.size * entry.size
    for position in range(0, whole, ENTRIES_CHUNK * entry.size):
        length = min(ENTRIES_CHUNK * entry.size, whole - position)
        yield from entry.iter_unpack(fs.pread(fd, length, position))


def _index_damage(fs: FileSystem, fd: int, entry: struct.Struct) -> Iterator[Line]:
    """Yields a line for each entry out of order (keys must rise, values never fall), and for an incomplete last one."""
    for number, (before, after) in enumerate(pairwise(_entries(fs, fd, entry)), start=1):
        if after[0] <= before[0] or after[1] < before[1]:
            yield _damage(number * entry.size, f"entry {number} {after} does not lie above the one before, {before}")
    rest = fs.size(fd) % entry.size
    if rest:
        yield _damage(fs.size(fd) - rest, f"{rest} bytes are too few for an entry")


def _damage(position: int, damage: str) -> Line:
    return {"position": position, "damage": damage}


def _codec_name(codec_id: int) -> str:
    from millrace.records.compression import codec_of

    try:
        return codec_of(codec_id).name.lower()
    except UnsupportedCodecError:
        return f"unknown {codec_id}"


def _text(line: Line) -> str:
    return "  " + "  ".join(f"{name} {_cell(name, value)}" for name, value in line.items())


def _cell(name: str, value: JsonValue) -> JsonValue:
    return iso_time(value) if name.endswith("timestamp") and isinstance(value, int) else value


def snapshot_lines(content: bytes) -> Iterator[JsonObject]:
    """Yields the producers in a producer snapshot's content, or its damage."""
    from millrace_broker.storage.producers.producer_state_manager import decode_snapshot

    try:
        entries = decode_snapshot(content)
    except CorruptRecordError as error:
        yield {"position": 0, "damage": str(error)}
        return
    for entry in entries:
        yield {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": entry.transaction_first_offset,
        }


def transaction_index_lines(content: bytes, base_offset: int) -> Iterator[JsonObject]:
    """Yields the aborted transactions of a segment, then damage: their markers must lie in it, in ascending order."""
    from millrace_broker.storage.segments.indexes import ABORTED_ENTRY, ABORTED_VERSION

    whole = len(content) // ABORTED_ENTRY.size * ABORTED_ENTRY.size
    entries = list(ABORTED_ENTRY.iter_unpack(content[:whole]))
    for number, (_, producer_id, first_offset, last_offset, last_stable_offset) in enumerate(entries):
        yield {
            "entry": number,
            "producer_id": producer_id,
            "first_offset": first_offset,
            "last_offset": last_offset,
            "last_stable_offset": last_stable_offset,
        }
    for number, (version, _, first_offset, last_offset, _) in enumerate(entries):
        if version != ABORTED_VERSION:
            yield _entry_damage(number, f"entry {number} is of version {version}, expected {ABORTED_VERSION}")
        elif last_offset < base_offset or first_offset > last_offset:
            yield _entry_damage(
                number, f"entry {number} goes from {first_offset} to {last_offset}, base is {base_offset}"
            )
    for number, (before, after) in enumerate(pairwise(entries), start=1):
        if after[3] <= before[3]:
            yield _entry_damage(number, f"entry {number} ends at {after[3]}, the one before at {before[3]}")
    if len(content) > whole:
        yield {"position": whole, "damage": f"{len(content) - whole} bytes are too few for an entry"}


def _entry_damage(number: int, damage: str) -> JsonObject:
    from millrace_broker.storage.segments.indexes import ABORTED_ENTRY

    return {"position": number * ABORTED_ENTRY.size, "damage": damage}


def group_record_of(record: Record) -> JsonObject:
    """Returns what a record says about a group: an offset, a classic group, or a part of a consumer group.

    A tombstone has null where its kind has a value. A record of unknown kind keeps its key and value as they are.

    Raises:
        CorruptRecordError: The bytes are no record of their kind.
    """
    from millrace_broker.groups import records
    from millrace_broker.groups.consumer.records import decode_key, decode_value

    if record.key is None:
        raise CorruptRecordError(f"the record at offset {record.offset} has no key, which a group's would have")
    shown: JsonObject = {"offset": record.offset, "timestamp": record.timestamp_ms}
    version = records.key_version(record.key)
    if version in records.OFFSET_KEY_VERSIONS:
        return {**shown, **_offset(record.key, record.value)}
    if version == records.GROUP_KEY_VERSION:
        return {**shown, **_classic_group(record.key, record.value)}
    key = decode_key(record.key)
    if key is None:
        return {**shown, "kind": version, "key": json_bytes(record.key), "value": json_bytes(record.value)}
    named = {"name": key.name} if key.name else {}
    value = None if record.value is None else _plain(decode_value(key.kind, record.value))
    return {**shown, "kind": key.kind.name.lower(), "group": key.group_id, **named, "value": value}


def _offset(key: bytes, value: bytes | None) -> JsonObject:
    from millrace_broker.groups.records import read_offset_key, read_offset_value

    group_id, topic, partition = read_offset_key(key)
    shown: JsonObject = {"kind": "offset", "group": group_id, "topic": topic, "partition": partition}
    if value is None:
        return {**shown, "committed": None}
    committed = read_offset_value(value)
    return {
        **shown,
        "committed": committed.offset,
        "leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "commit_timestamp": committed.commit_timestamp_ms,
        "expire_timestamp": committed.expire_timestamp_ms,
    }


def _classic_group(key: bytes, value: bytes | None) -> JsonObject:
    from millrace_broker.groups.records import read_group_key, read_group_value

    shown = {"kind": "classic_group", "group": read_group_key(key)}
    return {**shown, "value": None if value is None else _plain(read_group_value(value))}


def _plain(value: object) -> JsonValue:
    """Returns a decoded record as JSON values: named fields as objects, sets as sorted lists, enums as text."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(field) for name, field in value._asdict().items()}
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (frozenset, tuple)):
        return [_plain(one) for one in (value if isinstance(value, tuple) else sorted(value))]
    return json_value(value)


def transaction_of(record: Record) -> JsonObject:
    """Returns the transactional id of a record and its transaction, None for a tombstone; raises CorruptRecordError."""
    from millrace_broker.txns.records import read_key, read_value

    transactional_id = None if record.key is None else read_key(record.key)
    if transactional_id is None:
        raise CorruptRecordError(f"the record at offset {record.offset} has no transactional id for a key")
    shown: JsonObject = {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "transactional_id": transactional_id,
    }
    if record.value is None:
        return {**shown, "state": None}
    kept = read_value(record.value)
    return {
        **shown,
        "state": str(kept.state),
        "producer_id": kept.producer_id,
        "producer_epoch": kept.producer_epoch,
        "timeout_ms": kept.timeout_ms,
        "partitions": [f"{topic}-{index}" for topic, index in sorted(kept.partitions)],
        "start_timestamp": kept.start_timestamp_ms,
        "last_update_timestamp": kept.last_update_timestamp_ms,
        "previous_producer_id": kept.previous_producer_id,
        "next_producer_id": kept.next_producer_id,
        "client_version": kept.client_version,
    }


DECODERS: dict[str, ShowRecord] = {OFFSETS_TOPIC: group_record_of, TRANSACTION_TOPIC: transaction_of}
