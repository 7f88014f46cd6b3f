"""`millrace consume`: prints a topic's records on stdout.

    where to begin (`consume_read`, `GroupPositions`) ──► chunks ──► how they are written (`Format`) ──► stdout

Partitions are read in turn, each in the order of its offsets. Output is flushed after each fetch, and a group's offsets
are committed after that. The command ends when the reader of its output goes away.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from millrace.config import MAX_INT
from millrace.errors import BrokerError, ErrorCode, InvalidRecordError, MalformedValueError
from millrace.extras import require
from millrace_ops.cli.consume_read import Chunk, Start, TopicReader, parse_start
from millrace_ops.cli.options import ClusterAccess, Json, complete_group, complete_topic
from millrace_ops.cli.output import iso_time
from millrace_ops.record_values.json_line import DecodeValue, json_line

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.records.record import Record

NULL = b"null"
ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
TOKEN = re.compile(r"%(?P<field>.?)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.?))|(?P<text>[^%\\]+)", re.DOTALL)


class Shown(NamedTuple):
    """A record with its topic and partition, and its value as it is printed."""

    topic: str
    partition: int
    record: Record
    value: bytes


FIELDS: dict[str, Callable[[Shown], bytes]] = {
    "k": lambda one: _shown(one.record.key),
    "v": lambda one: one.value,
    "s": lambda one: one.value,
    "o": lambda one: b"%d" % one.record.offset,
    "p": lambda one: b"%d" % one.partition,
    "t": lambda one: one.topic.encode(),
    "T": lambda one: b"%d" % one.record.timestamp_ms,
    "h": lambda one: _headers(one.record),
    "K": lambda one: _length(one.record.key),
    "S": lambda one: _length(one.record.value),
}

RecordTemplate = tuple[bytes | Callable[[Shown], bytes], ...]


class Format(NamedTuple):
    """The form in which records are printed; `decode` turns values into JSON, without it they are bytes."""

    as_json: bool = False
    print_timestamp: bool = False
    print_headers: bool = False
    print_key: bool = False
    template: RecordTemplate | None = None
    decode: DecodeValue | None = None


def parse_template(text: str) -> RecordTemplate:
    r"""Returns the parts of a template; raises MalformedValueError for an unknown field or escape.

    It is kcat's: `%k` key, `%v` (or `%s`) value, `%o` offset, `%p` partition, `%t` topic, `%T` timestamp in ms, `%h`
    headers, `%K` and `%S` lengths of key and value in bytes (-1: null), `%%`; `\n`, `\t`, `\r`, `\0`, `\\` and
    `\xHH` are bytes. No line end is added.
    """
    parts: list[bytes | Callable[[Shown], bytes]] = []
    for token in TOKEN.finditer(text):
        match token.lastgroup, token[token.lastgroup or 0]:
            case "text", plain:
                parts.append(os.fsencode(plain))
            case "hex", digits:
                parts.append(bytes.fromhex(digits))
            case "field", "%":
                parts.append(b"%")
            case "field", name if name in FIELDS:
                parts.append(FIELDS[name])
            case "escape", name if name in ESCAPES:
                parts.append(ESCAPES[name])
            case _:
                known = ", ".join((*(f"%{one}" for one in FIELDS), "%%", r"\n, \t, \r, \0, \\, \xHH"))
                raise MalformedValueError(f"--format: {token[0]} is not known; there are {known}")
    return tuple(parts)


def format_record(topic: str, partition: int, record: Record, shape: Format) -> bytes:
    """Returns a record as the bytes for stdout, with a line end unless a template says where lines end."""
    if shape.as_json:
        return json_line(topic, partition, record, shape.decode)
    value = _shown(record.value)
    if record.value is not None and shape.decode is not None:
        value = json.dumps(shape.decode(record.value), ensure_ascii=False).encode()
    if shape.template is not None:
        shown = Shown(topic, partition, record, value)
        return b"".join(part if isinstance(part, bytes) else part(shown) for part in shape.template)
    parts: list[bytes] = []
    if shape.print_timestamp:
        parts.append(iso_time(record.timestamp_ms).encode())
    if shape.print_headers:
        parts.append(_headers(record))
    if shape.print_key:
        parts.append(_shown(record.key))
    return b"\t".join((*parts, value)) + b"\n"


def _headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + _shown(value) for name, value in record.headers)


def _shown(value: bytes | None) -> bytes:
    return NULL if value is None else value


def _length(value: bytes | None) -> bytes:
    return b"-1" if value is None else b"%d" % len(value)


From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="earliest|latest|OFFSET|TIME",
        help="Where to begin; TIME is in ISO 8601, and in UTC unless it has an offset.",
        show_default="earliest",
    ),
]
Last = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=MAX_INT, help="Begin at the last N records of each partition.")
]
Group = Annotated[
    str | None,
    typer.Option(
        metavar="GROUP",
        help="Go on at the committed offsets of this group, and commit what was printed.",
        autocompletion=complete_group,
    ),
]
Isolation = Annotated[
    Literal["read_committed", "read_uncommitted"],
    typer.Option(help="Print records of committed transactions alone, or of open and aborted ones too."),
]
AcceptMissingOffsets = Annotated[
    bool,
    typer.Option(
        "--accept-missing-offsets",
        help="Go on, with a warning, where a log that is not compacted has gaps, and behind damaged batches.",
    ),
]
Registry = Annotated[
    str | None, typer.Option(metavar="URL|DIR", help="Decode values by the schemas of this registry, and print JSON.")
]
Template = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="TEMPLATE",
        help=r"As kcat's: %k key, %v value, %o offset, %p partition, %t topic, %T time in ms, %h headers, \n, \t.",
    ),
]
Commit = Callable[[Mapping[int, int]], None]


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.", autocompletion=complete_topic)],
    *,
    access: ClusterAccess,
    start: From = None,
    last: Last = None,
    group: Group = None,
    partition: Annotated[list[int] | None, typer.Option(metavar="P", min=0, help="Only this one; repeatable.")] = None,
    max_messages: Annotated[int | None, typer.Option(metavar="N", min=0, help="Stop after N records.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--until-end", help="Wait for more, or stop where the topic ends now.")
    ] = False,
    isolation_level: Isolation = "read_committed",
    accept_missing_offsets: AcceptMissingOffsets = False,
    schema_registry: Registry = None,
    as_json: Json = False,
    template: Template = None,
    print_key: Annotated[bool, typer.Option("--print-key", help="Print the key and a tab before the value.")] = False,
    print_headers: Annotated[
        bool, typer.Option("--print-headers", help="Print headers and a tab before the key.")
    ] = False,
    print_timestamp: Annotated[
        bool, typer.Option("--print-timestamp", help="Print the time, in ISO 8601, and a tab before all.")
    ] = False,
) -> None:
    """Print a topic's records.

    Values are written as they are, one a line; with --json a record is one JSON object a line, which `produce --input
    json` takes back. docs/command-line.md says more of groups, formats and schemas.
    """
    from millrace.client.fetched import IsolationLevel

    if last is not None and (start is not None or group is not None):
        raise typer.BadParameter("not together with --from or --group, which say where to begin", param_hint="--last")
    if template is not None and (as_json or print_key or print_headers or print_timestamp):
        raise typer.BadParameter("not together with --json or --print-…", param_hint="--format")
    begin = parse_start(start or "earliest")
    parsed = None if template is None else parse_template(template)
    shape = Format(as_json, print_timestamp, print_headers, print_key, parsed, _decoder(schema_registry))
    try:
        with access.open() as cluster:
            isolation = IsolationLevel[isolation_level.upper()]
            reader = TopicReader(cluster, topic, isolation, accept_missing_offsets=accept_missing_offsets)
            chosen = partition or reader.partitions()
            ends = None if follow else {one: reader.end(one) for one in chosen}
            commit = None
            if group is not None:
                positions = GroupPositions(cluster, group, topic)
                offsets, commit = _group_offsets(reader, chosen, begin, positions), positions.commit
            elif last is not None:
                offsets = {one: reader.offset_of_last(one, last) for one in chosen}
            else:
                offsets = reader.first_offsets(chosen, begin, _tell)
            _print_records(topic, reader.chunks(offsets, ends), max_messages, shape, commit)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        if not follow:
            raise


def _decoder(schema_registry: str | None) -> DecodeValue | None:
    if schema_registry is None:
        return None
    require("consume --schema-registry", "tables")
    from millrace_ops.record_values.by_schema import SchemaValues

    return SchemaValues(schema_registry).decode


def _group_offsets(
    reader: TopicReader, partitions: list[int], begin: Start, positions: GroupPositions
) -> Mapping[int, int]:
    """Returns the group's offsets; for a partition without one, commits and returns the one that `--from` means."""
    committed = reader.inside_log(positions.read(partitions), _tell)
    fresh = [one for one in partitions if one not in committed]
    begun = reader.first_offsets(fresh, begin, _tell) if fresh else {}
    positions.commit(begun)
    return {**committed, **begun}


def _print_records(
    topic: str, chunks: Iterable[Chunk], max_messages: int | None, shape: Format, commit: Commit | None
) -> None:
    remaining = sys.maxsize if max_messages is None else max_messages
    if not remaining:
        return
    out = sys.stdout.buffer
    for chunk in chunks:
        printed = chunk.records[:remaining]
        for record in printed:
            out.write(_formatted(topic, chunk.partition, record, shape))
        out.flush()
        is_whole = len(printed) == len(chunk.records)
        if commit is not None:
            commit({chunk.partition: chunk.next_offset if is_whole else printed[-1].offset + 1})
        remaining -= len(printed)
        if not remaining:
            return


def _formatted(topic: str, partition: int, record: Record, shape: Format) -> bytes:
    try:
        return format_record(topic, partition, record, shape)
    except InvalidRecordError as error:
        raise InvalidRecordError(f"{topic}-{partition} at offset {record.offset}: {error}") from error


def _tell(note: str) -> None:
    typer.echo(f"millrace: {note}", err=True)


class GroupPositions:
    """The committed offsets of one group in one topic; the command is no member of the group.

    One command at a time reads all partitions. Offsets are committed after their records were printed, so that a crash
    in between prints them a second time: at least once.

    Raises:
        GroupHasMembersError: The group has members, which own its partitions and would overwrite these commits.
    """

    def __init__(self, cluster: Cluster, group_id: str, topic: str) -> None:
        from millrace.client import Groups

        self._groups = Groups(cluster)
        self._group_id = group_id
        self._topic = topic
        self._committed: dict[int, int] = {}
        self._refuse_members()

    def read(self, partitions: Iterable[int]) -> Mapping[int, int]:
        """Returns the next offset of each partition that the group has committed."""
        from millrace.records.batch import NO_OFFSET

        found = self._groups.offsets(self._group_id, [(self._topic, one) for one in partitions])
        self._committed = {number: one.offset for (_, number), one in found.items() if one.offset != NO_OFFSET}
        return dict(self._committed)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commits the offsets that have changed; raises BrokerError if the group has members by now."""
        from millrace.client.groups import GroupOffset

        changed = {one: offset for one, offset in offsets.items() if self._committed.get(one) != offset}
        if changed:
            placed = {(self._topic, one): GroupOffset(offset, "") for one, offset in changed.items()}
            self._groups.commit(self._group_id, placed)
            self._committed.update(changed)

    def _refuse_members(self) -> None:
        from millrace.client.consumer import GroupHasMembersError

        try:
            members = self._groups.describe(self._group_id).members
        except BrokerError as error:
            if error.broker_code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return
        if members:
            names = ", ".join(sorted(one.member_id for one in members))
            raise GroupHasMembersError(f"group {self._group_id} has live members ({names}); stop them first")
