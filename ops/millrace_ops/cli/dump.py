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
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.fs import OsFileSystem
from millrace.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from millrace.json_values import JsonObject, JsonValue
from millrace_ops.cli.dump_groups import group_record_of
from millrace_ops.cli.dump_producers import snapshot_lines, transaction_index_lines
from millrace_ops.cli.dump_transactions import transaction_of
from millrace_ops.cli.options import Json
from millrace_ops.cli.output import iso_time, print_json
from millrace_ops.record_values.as_json import json_bytes

if TYPE_CHECKING:
    from millrace.fs import FileSystem
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
        """Locks as a writer does, as far as a descriptor for reading can."""
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
    """Returns how the records of a file are shown, judging by the topic in its folder's name."""
    from millrace_broker.storage.filenames import parse_partition_dir

    partition = parse_partition_dir(file.absolute().parent.name)
    return _record if partition is None else DECODERS.get(partition.topic, _record)


def lines_of(file: Path, show_record: ShowRecord | None) -> Iterator[Line]:
    """Yields the lines of a file, with its records if `show_record` is given; a damage has `position` and `damage`."""
    from millrace.errors import InvalidConfigError
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
    from millrace.errors import RecordError
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
                yield from map(_record if header.is_control else show_record, _records(fs, fd, position, header))
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


def _records(fs: FileSystem, fd: int, position: int, header: BatchHeader) -> Iterator[Record]:
    from millrace.records.record import decode_batch

    return decode_batch(header, memoryview(fs.pread(fd, header.size_bytes, position)))


def _record(record: Record) -> Line:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
    }


DECODERS: dict[str, ShowRecord] = {OFFSETS_TOPIC: group_record_of, TRANSACTION_TOPIC: transaction_of}


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
    """Yields the whole entries of an index, in chunks."""
    whole = fs.size(fd) // entry.size * entry.size
    for position in range(0, whole, ENTRIES_CHUNK * entry.size):
        length = min(ENTRIES_CHUNK * entry.size, whole - position)
        yield from entry.iter_unpack(fs.pread(fd, length, position))


def _index_damage(fs: FileSystem, fd: int, entry: struct.Struct) -> Iterator[Line]:
    """Yields entries that break the order (keys increase, values never decrease), and a tail that is no whole entry."""
    for number, (before, after) in enumerate(pairwise(_entries(fs, fd, entry)), start=1):
        if after[0] <= before[0] or after[1] < before[1]:
            yield _damage(number * entry.size, f"entry {number} {after} does not lie above the one before, {before}")
    rest = fs.size(fd) % entry.size
    if rest:
        yield _damage(fs.size(fd) - rest, f"{rest} bytes are too few for an entry")


def _damage(position: int, damage: str) -> Line:
    return {"position": position, "damage": damage}


def _codec_name(codec_id: int) -> str:
    from millrace.errors import UnsupportedCodecError
    from millrace.records.compression import codec_of

    try:
        return codec_of(codec_id).name.lower()
    except UnsupportedCodecError:
        return f"unknown {codec_id}"


def _text(line: Line) -> str:
    return "  " + "  ".join(f"{name} {_cell(name, value)}" for name, value in line.items())


def _cell(name: str, value: JsonValue) -> JsonValue:
    return iso_time(value) if name.endswith("timestamp") and isinstance(value, int) else value
