"""`read_topic`: a topic's records for Python without Spark, of all partitions, by offsets or by time.

The offsets are found when it is called; the records are read when they are looked at (`client.topic_records`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from millrace.client.client_settings import cluster_of
from millrace.client.cluster import Cluster
from millrace.client.fetched import IsolationLevel
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.client.simple_consumer import SimpleConsumer
from millrace.errors import InvalidRequestError, MillraceError, UnknownTopicError
from millrace.extras import require
from millrace.records.intervals import Interval
from millrace.security.client_security import ClientSecurity
from millrace.times import epoch_ms, parse_time

if TYPE_CHECKING:
    from millrace.client.topic_records import TopicRecords


def read_topic(
    topic: str,
    bootstrap_servers: str | None = None,
    *,
    partitions: Iterable[int] | None = None,
    from_offset: int | Mapping[int, int] | None = None,
    until_offset: int | Mapping[int, int] | None = None,
    from_time: datetime | str | None = None,
    until_time: datetime | str | None = None,
    isolation: IsolationLevel | str = IsolationLevel.READ_COMMITTED,
    accept_missing_offsets: bool = False,
    security: ClientSecurity | None = None,
    **properties: Any,
) -> TopicRecords:
    """Returns the records that a topic has now, which are read when they are looked at.

        read_topic("weather", "127.0.0.1:9092", from_time="2026-11-01").pl()

    Args:
        topic: The topic's name.
        bootstrap_servers: `HOST:PORT[,HOST:PORT…]` of brokers.
        partitions: Only these; all where none are given.
        from_offset: The first offset, of all partitions or by partition; the log's first where none is given.
        until_offset: The offset after the last one, in the same way; the log's end now where it is not above it.
        from_time: The time, ISO 8601 and in UTC without a zone, of the first record: reading begins at the first offset
            whose record is not older.
        until_time: The time before which reading ends, in the same way.
        isolation: Whether only records of committed transactions are read.
        accept_missing_offsets: Whether reading goes on past offsets that the log lacks, and past damaged batches.
        security: Of the connections to the brokers, unless properties set it.
        properties: Those of `SimpleConsumer`, as keywords: `client_id`, `security_protocol`, `ssl_…`, `sasl_…`.

    Raises:
        InvalidConfigError: A property is unknown, wrong or missing.
        InvalidRequestError: An offset and a time are given for the same end, or a time that is none.
        UnknownTopicError: There is no such topic, or it has no such partition.
        BrokerUnreachableError: No broker answers.
        OffsetOutOfRangeError: Raised while reading: the log has records from `from_offset` on no more.
        RecordError: Raised while reading: batches are damaged or missing.
    """
    if bootstrap_servers is not None:
        properties["bootstrap_servers"] = bootstrap_servers
    level = _isolation(isolation)

    def connect() -> Cluster:
        return cluster_of(None, security, properties)

    cluster = connect()  # what is misspelt is told before what is missing
    require("read_topic", "tables")
    from millrace.client.topic_records import TopicRecords  # noqa: PLC0415 -- a name of it can be had without Arrow

    with cluster:
        ends = _ends(cluster, topic, partitions, level)
        consumer = SimpleConsumer(cluster)
        first = _Bound("from", from_offset, from_time).of(consumer, topic, ends)
        last = _Bound("until", until_offset, until_time).of(consumer, topic, ends)
    intervals = {
        one: Interval(first.get(one, log.start_offset), min(last.get(one, log.end_offset), log.end_offset))
        for one, log in ends.items()
    }
    return TopicRecords(topic, intervals, connect, level, accept_missing_offsets=accept_missing_offsets)


def _isolation(given: IsolationLevel | str) -> IsolationLevel:
    names = {one.name.lower(): one for one in IsolationLevel}
    if isinstance(given, str) and given not in names:
        raise InvalidRequestError(f"isolation={given}: it is one of {', '.join(names)}")
    return names[given] if isinstance(given, str) else given


class _Bound:
    """One end of what is asked for: an offset, or a time, or neither."""

    def __init__(self, name: str, offset: int | Mapping[int, int] | None, time: datetime | str | None) -> None:
        if offset is not None and time is not None:
            raise InvalidRequestError(f"{name}_offset and {name}_time: one of them can be asked for")
        self._name, self._offset = name, offset
        try:
            moment = parse_time(time) if isinstance(time, str) else time
        except ValueError as error:
            raise InvalidRequestError(f"{name}_time={time}: {error}") from error
        self._time_ms = None if moment is None else epoch_ms(moment)

    def of(self, consumer: SimpleConsumer, topic: str, logs: Mapping[int, LogOffsets]) -> dict[int, int]:
        """Returns the offset in each log, for the partitions of which one is asked for."""
        if self._time_ms is not None:
            found = {one: consumer.offset_for_time(topic, one, self._time_ms) for one in logs}
            return {one: logs[one].end_offset if offset is None else offset for one, offset in found.items()}
        if isinstance(self._offset, Mapping):
            if unknown := self._offset.keys() - logs.keys():
                raise InvalidRequestError(f"{self._name}_offset: {topic}-{min(unknown)} is not among what is read")
            return dict(self._offset)
        return {} if self._offset is None else dict.fromkeys(logs, self._offset)


def _ends(
    cluster: Cluster, topic: str, partitions: Iterable[int] | None, isolation: IsolationLevel
) -> dict[int, LogOffsets]:
    """Returns where the logs begin and end; raises UnknownTopicError, or the error of the first that can't be asked."""
    known = sorted(cluster.metadata([topic]).topic(topic).partitions)
    wanted = known if partitions is None else sorted({*partitions})
    if unknown := {*wanted} - {*known}:
        raise UnknownTopicError(f"{topic} has no partition {min(unknown)}: it has {len(known)}")
    found: dict[int, LogOffsets] = {}
    for (_, partition), log in read_log_offsets(cluster, [(topic, one) for one in wanted], isolation).items():
        if isinstance(log, MillraceError):
            raise log
        found[partition] = log
    return found
