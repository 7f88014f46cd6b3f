"""The data source's options; an option of another name is refused.

    option                  reads      meaning, default
    bootstrap               both       HOST:PORT[,...] of brokers
    topic, topics           both       one topic, or several with commas between
    topicPattern            both       a regular expression that whole names of topics match
    partitions              both       the partitions that are read, like 0,3-5; all
    startingOffsets         both       as below; a batch begins at earliest, a stream at latest
    startingTime            both       in place of startingOffsets
    endingOffsets           batch      latest
    endingTime              batch      in place of endingOffsets; the first offset that is not older, excluded
    isolation               both       read_committed or read_uncommitted; read_committed
    failOnDataLoss          both       whether offsets that are gone stop the query; true
    maxRecordsPerTask       both       offsets of a task, into which a partition's range is cut; one task each
    maxRecordsPerTrigger    stream     offsets of a micro-batch, of all partitions together; no limit
    maxBytesPerTrigger      stream     bytes of a micro-batch, estimated from each partition's next batches; no limit
    clientConfig            both       the file with Kafka's client properties of security, or env:NAME
    millrace.NAME           both       one of these properties; kafka.NAME says the same

Names are taken in upper and lower case, as Spark does. Spark shows options in its plans, so no secret may be one: it
stands in the file, which the tasks read. A read begins and ends at one of these:

earliest, latest                              the log's start or end when the query is planned
{"events": {"0": 17, "1": -2}}                an offset for each partition; -2 is earliest, -1 latest
2026-03-01T00:00:00Z, 1772323200000           the first offset whose record is not older, else the log's end
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from millrace import times
from millrace.client import TopicMetadata
from millrace.errors import ErrorCode, UnknownTopicError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.security.client_config import SecuritySource
from millrace.security.client_security import SECRETS, is_of_security
from millrace_pipelines.spark.brokers import Brokers, LogOffsets, TopicSource
from millrace_pipelines.spark.choices import Isolation
from millrace_pipelines.spark.errors import LogTruncatedError, OffsetsLostError, SourceOptionError

EARLIEST = -2
LATEST = -1
LOGICAL = {"earliest": EARLIEST, "latest": LATEST}

OffsetForTime = Callable[[str, int, int], int | None]
"""Returns, for a topic, a partition and milliseconds, the first offset that is not older; None where all are older."""


class Position(NamedTuple):
    """A starting or ending position: earliest or latest for all, an offset for each partition by topic, or a time."""

    logical: int = EARLIEST
    offsets: Mapping[str, Mapping[int, int]] | None = None
    timestamp_ms: int | None = None


def parse_offsets(option: str, text: str) -> Position:
    """Parses `earliest`, `latest` or JSON such as `{"topic": {"0": 17}}`; raises SourceOptionError for other texts."""
    if text.strip().lower() in LOGICAL:
        return Position(LOGICAL[text.strip().lower()])
    try:
        parsed = json.loads(text)
        offsets = {
            str(topic): {int(partition): _offset(offset) for partition, offset in partitions.items()}
            for topic, partitions in parsed.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise SourceOptionError(
            f'{option}: {text!r} is neither earliest, latest nor JSON like {{"topic": {{"0": 17, "1": -2}}}}: {error}'
        ) from None
    return Position(offsets=offsets)


def parse_time(option: str, text: str) -> Position:
    """Parses a time: ISO 8601 (UTC without a zone) or milliseconds since 1970; raises SourceOptionError for others."""
    try:
        return Position(timestamp_ms=int(text))
    except ValueError:
        pass
    try:
        return Position(timestamp_ms=times.epoch_ms(times.parse_time(text)))
    except ValueError:
        raise SourceOptionError(
            f"{option}: {text!r} is neither a time of ISO 8601 nor milliseconds since 1970"
        ) from None


def check_named_partitions(option: str, position: Position, partitions: Mapping[str, tuple[int, ...]]) -> None:
    """Raises SourceOptionError unless a position by partition names exactly the partitions that are read."""
    if position.offsets is None:
        return
    named = {(topic, partition) for topic, offsets in position.offsets.items() for partition in offsets}
    wanted = {(topic, partition) for topic, indexes in partitions.items() for partition in indexes}
    for which, some in (("is not read", named - wanted), ("is missing", wanted - named)):
        if some:
            topic, partition = min(some)
            raise SourceOptionError(f"{option}: topic {topic}, partition {partition} {which}")


def resolve(position: Position, topic: str, partition: int, log: LogOffsets, offset_for_time: OffsetForTime) -> int:
    """Returns a position as an offset of one partition; an explicit offset may lie outside of the log."""
    if position.timestamp_ms is not None:
        found = offset_for_time(topic, partition, position.timestamp_ms)
        return log.end_offset if found is None else found
    offset = position.logical if position.offsets is None else position.offsets[topic][partition]
    return {EARLIEST: log.start_offset, LATEST: log.end_offset}.get(offset, offset)


def within_log(offset: int, topic: str, partition: int, log: LogOffsets, *, fail_on_data_loss: bool) -> int:
    """Returns the offset; with `fail_on_data_loss` off, the nearest one inside the log.

    Raises:
        OffsetsLostError: The offset is below the log's start, and `fail_on_data_loss` is on.
        LogTruncatedError: The offset is above the log's end, and `fail_on_data_loss` is on.
    """
    if fail_on_data_loss and offset < log.start_offset:
        raise OffsetsLostError(
            f"topic {topic}, partition {partition}: offsets {offset}-{log.start_offset - 1} were deleted by retention; "
            "failOnDataLoss=false goes on without them"
        )
    if fail_on_data_loss and offset > log.end_offset:
        raise LogTruncatedError(
            f"topic {topic}, partition {partition}: offset {offset} is asked for, the log ends at {log.end_offset}; "
            "failOnDataLoss=false goes on from there"
        )
    return min(max(offset, log.start_offset), log.end_offset)


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST:
        raise ValueError(f"{value!r} is not an offset")
    return value


CLIENT_CONFIG = "clientConfig"
PREFIXES = ("millrace.", "kafka.")
COMMON = (
    *("bootstrap", "topic", "topics", "topicPattern", "partitions", "startingOffsets", "startingTime"),
    *("isolation", "failOnDataLoss", "maxRecordsPerTask", CLIENT_CONFIG),
)
ONLY_BATCH = ("endingOffsets", "endingTime")
ONLY_STREAM = ("maxRecordsPerTrigger", "maxBytesPerTrigger")
CHOICES_OF_TOPICS = ("topic", "topics", "topicPattern")
BOOLEANS = {"true": True, "false": False}
ISOLATIONS = {str(one): one for one in Isolation}
PARTITIONS = re.compile(r"(?P<low>\d+)(?:-(?P<high>\d+))?")
MAX_PARTITION = 2**31 - 1

Choice = TypeVar("Choice")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The parsed options of a read; `topics` is empty where a pattern chooses them."""

    bootstrap: str
    topics: tuple[str, ...]
    topic_pattern: str | None
    partitions: tuple[range, ...] | None
    starting: Position | None
    ending: Position
    isolation: Isolation
    fail_on_data_loss: bool
    max_records_per_task: int | None
    max_records_per_trigger: int | None
    max_bytes_per_trigger: int | None
    security: SecuritySource

    def brokers(self) -> Brokers:
        """Returns a client of the cluster."""
        return Brokers(self.bootstrap, self.isolation, self.security)

    def source(self, topic: str) -> TopicSource:
        """Returns one of the topics with the isolation and security with which it is read."""
        return TopicSource(self.bootstrap, topic, self.isolation, self.security)

    def wants(self, partition: int) -> bool:
        """Returns whether the options choose a partition."""
        return self.partitions is None or any(partition in one for one in self.partitions)


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Parses the options of a read; raises SourceOptionError for one that is unknown, missing, or can't be used."""
    properties, others = _properties(options)
    given = _known(others)
    topics, pattern = _topics(given)
    return SourceOptions(
        bootstrap=_required(given, "bootstrap"),
        topics=topics,
        topic_pattern=pattern,
        partitions=_partitions(given),
        starting=_position(given, "startingOffsets", "startingTime"),
        ending=_position(given, "endingOffsets", "endingTime") or Position(LATEST),
        isolation=_one_of(given, "isolation", ISOLATIONS, Isolation.READ_COMMITTED),
        fail_on_data_loss=_one_of(given, "failOnDataLoss", BOOLEANS, "true"),
        max_records_per_task=_count(given, "maxRecordsPerTask"),
        max_records_per_trigger=_count(given, "maxRecordsPerTrigger"),
        max_bytes_per_trigger=_count(given, "maxBytesPerTrigger"),
        security=SecuritySource(given.get(CLIENT_CONFIG), properties),
    )


def refuse(options: Mapping[str, str], names: tuple[str, ...], kind: str) -> None:
    """Raises SourceOptionError where one of the options in `names`, which this kind of read lacks, is given."""
    for name in names:
        if name.lower() in {given.lower() for given in options}:
            raise SourceOptionError(f"{name}: not an option of a {kind}")


def _properties(options: Mapping[str, str]) -> tuple[tuple[tuple[str, str], ...], dict[str, str]]:
    """Splits the options into Kafka's properties of security, and all others."""
    properties: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, value in options.items():
        prefix = next((one for one in PREFIXES if name.lower().startswith(one)), None)
        if prefix is None:
            others[name] = value
            continue
        written = name.lower().removeprefix(prefix)
        if written in SECRETS:
            raise SourceOptionError(f"{name}: Spark would show it; write it into the file that {CLIENT_CONFIG} names")
        if not is_of_security(written):
            raise SourceOptionError(f"{name}: only properties of security are taken: security.protocol, ssl.…, sasl.…")
        properties[written] = value
    return tuple(sorted(properties.items())), others


def _known(options: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower(): name for name in (*COMMON, *ONLY_BATCH, *ONLY_STREAM)}
    given: dict[str, str] = {}
    for name, value in options.items():
        if name.lower() not in names:
            raise SourceOptionError(f"{name}: unknown option; there are {', '.join(names.values())}")
        given[names[name.lower()]] = value
    return given


def _required(given: Mapping[str, str], name: str) -> str:
    if not given.get(name, "").strip():
        raise SourceOptionError(f"{name}: this option is needed")
    return given[name]


def _topics(given: Mapping[str, str]) -> tuple[tuple[str, ...], str | None]:
    chosen = [name for name in CHOICES_OF_TOPICS if name in given]
    if len(chosen) != 1:
        raise SourceOptionError(f"one of {', '.join(CHOICES_OF_TOPICS)} is needed, and only one")
    value = _required(given, chosen[0])
    if chosen[0] == "topic":
        return (value.strip(),), None
    if chosen[0] == "topics":
        return tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip())), None
    try:
        re.compile(value)
    except re.error as error:
        raise SourceOptionError(f"topicPattern: {value!r} is not a regular expression: {error}") from None
    return (), value


def _partitions(given: Mapping[str, str]) -> tuple[range, ...] | None:
    if "partitions" not in given:
        return None
    ranges: list[range] = []
    for part in given["partitions"].split(","):
        match = PARTITIONS.fullmatch(part.strip())
        if match is None or int(match["high"] or match["low"]) > MAX_PARTITION:
            raise SourceOptionError(f"partitions: {part.strip()!r} is neither a partition nor a range like 3-5")
        ranges.append(range(int(match["low"]), int(match["high"] or match["low"]) + 1))
    return tuple(ranges)


def _position(given: Mapping[str, str], offsets: str, time: str) -> Position | None:
    if offsets in given and time in given:
        raise SourceOptionError(f"{offsets} and {time} exclude each other")
    if time in given:
        return parse_time(time, given[time])
    return parse_offsets(offsets, given[offsets]) if offsets in given else None


def _one_of(given: Mapping[str, str], name: str, values: Mapping[str, Choice], default: str) -> Choice:
    try:
        return values[given.get(name, default).strip().lower()]
    except KeyError:
        raise SourceOptionError(f"{name}: {given[name]!r} is not one of {', '.join(values)}") from None


def _count(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    if not given[name].strip().isascii() or not given[name].strip().isdigit() or int(given[name]) < 1:
        raise SourceOptionError(f"{name}: {given[name]!r} is not a number above 0")
    return int(given[name])


class SourceTopic(NamedTuple):
    """A topic's id, or its name where the cluster gives no id (before Kafka 2.8), and the partitions to read."""

    topic_id: str
    partitions: tuple[int, ...]


def chosen_topics(options: SourceOptions, brokers: Brokers) -> dict[str, SourceTopic]:
    """Returns the topics that the options choose in the cluster now, by name.

    Raises:
        UnknownTopicError: A topic that the options name does not exist.
        SourceOptionError: A partition that they name is in none of the topics.
    """
    metadata = brokers.metadata(None if options.topic_pattern is not None else options.topics)
    names: Iterable[str] = options.topics
    if options.topic_pattern is not None:
        pattern = re.compile(options.topic_pattern)
        names = (name for name in metadata.topics if pattern.fullmatch(name) and name not in INTERNAL_TOPICS)
    found = {name: _chosen(options, metadata.topic(name)) for name in sorted(names)}
    _check_partitions(options, found)
    return found


def _chosen(options: SourceOptions, topic: TopicMetadata) -> SourceTopic:
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicError(f"topic {topic.name} does not exist")
    partitions = tuple(partition for partition in sorted(topic.partitions) if options.wants(partition))
    return SourceTopic(str(topic.topic_id or topic.name), partitions)


def _check_partitions(options: SourceOptions, topics: Mapping[str, SourceTopic]) -> None:
    there = {partition for topic in topics.values() for partition in topic.partitions}
    for chosen in options.partitions or ():
        if topics and not any(partition in chosen for partition in there):
            raise SourceOptionError(f"partitions: {chosen.start}-{chosen.stop - 1}: no topic that is read has them")
