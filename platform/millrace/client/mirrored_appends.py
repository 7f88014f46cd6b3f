"""Writing mirrored partitions: batches of another cluster, at the offsets that they have there.

A topic with the property `mirror.source` takes no other writes. Its partitions are written by compare and set: each
append says where it expects the log to end, and changes nothing where it ends elsewhere. So a mirror needs to remember
nothing. It asks where the log ends, by an append of nothing at -1, and goes on there, after errors too: whether the
append before was carried out, the log's end tells.

    append_mirrored(cluster, [MirroredAppend("orders", 0, 4711, batches)])    one request for each leader
    end_mirroring(cluster, "orders", 0)                                       before `mirror.source` is taken away

The API is Millrace's own: ask `can_be_followed_into` first, as another broker would close the connection.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millrace.client.admin import Admin
from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection, Unanswered
from millrace.client.metadata import Partition
from millrace.errors import ClientError, InvalidConfigError, MillraceError
from millrace.records.batch import NO_OFFSET
from millrace.wire.messages import APPEND_MIRRORED

if TYPE_CHECKING:
    from millrace.wire.api_messages import Ask
    from millrace.wire.messages.append_mirrored import (
        AppendedPartition,
        AppendMirroredResponse,
        MirroredPartitionFields,
    )

MIRROR_SOURCE = "mirror.source"
ASKED_PREFIX = "__mirror_"  # a mirror may create topics of its own, which begin so, and perhaps no others


class MirroredAppend(NamedTuple):
    """Whole batches for one partition, and where its log is expected to end; a last batch may be cut short.

    `log_start_offset` is where the log begins if it is empty and ends below that, as the source's log begins there.
    """

    topic: str
    partition: int
    end_offset: int
    records: bytes
    log_start_offset: int = NO_OFFSET


class MirroredLog(NamedTuple):
    """Where a partition's log ends after an append, also one that has failed; -1 where that is not known.

    An OffsetOutOfRangeError says that the log ends elsewhere than expected, so that nothing was appended.
    """

    end_offset: int
    high_watermark: int
    error: MillraceError | None


def append_mirrored(cluster: Cluster, appends: Sequence[MirroredAppend]) -> dict[Partition, MirroredLog]:
    """Appends batches to mirrored partitions, each named once; returns for each its log, or the error. Raises none.

    All leaders are asked at once, by one request each, of at most `socket.request.max.bytes`. An append whose answer is
    lost may have been carried out.
    """
    found: dict[Partition, MirroredLog] = {}
    by_leader: dict[Connection, list[MirroredAppend]] = {}
    for one in appends:
        try:
            by_leader.setdefault(cluster.leader_connection(one.topic, one.partition), []).append(one)
        except MillraceError as error:
            found[one.topic, one.partition] = MirroredLog(NO_OFFSET, NO_OFFSET, error)
    sent = [(connection, asked, _begun(cluster, connection, asked)) for connection, asked in by_leader.items()]
    for connection, asked, begun in sent:
        answers = _answers(connection, begun)
        found |= {(one.topic, one.partition): _log_of(one, answers) for one in asked}
    for partition, log in found.items():
        if log.error is not None:
            cluster.forget_leader(*partition)
    return {(one.topic, one.partition): found[one.topic, one.partition] for one in appends}


def end_mirroring(cluster: Cluster, topic: str, partition: int) -> int:
    """Ends the mirroring into a partition, on all in-sync replicas, and returns where the log ends then.

    Open transactions are aborted. To end it again changes nothing. Raises what the leader answers.
    """
    wanted: MirroredPartitionFields = {
        "partition_index": partition,
        "log_end_offset": NO_OFFSET,
        "records": None,
        "ends_mirroring": True,
    }

    def action(connection: Connection) -> int:
        answer = connection.request(*_ask(cluster, {topic: [wanted]}), wait_s=cluster.timeout_s)
        log = _log_of(MirroredAppend(topic, partition, NO_OFFSET, b""), _by_partition(answer))
        if log.error is not None:
            raise log.error
        return log.end_offset

    return cluster.on_leader(topic, partition, action)


def can_be_followed_into(cluster: Cluster) -> bool:
    """Returns whether the cluster has mirrored topics: it would create one. Raises MillraceError if it can't be asked.

    Every other cluster refuses the property `mirror.source`.
    """
    name = f"{ASKED_PREFIX}{uuid.uuid4()}"
    try:
        Admin(cluster).create_topic(name, 1, config={MIRROR_SOURCE: "asked"}, validate_only=True)
    except InvalidConfigError:
        return False
    return True


_Answers = Mapping[Partition, "AppendedPartition"] | MillraceError


def _begun(
    cluster: Cluster, connection: Connection, appends: Sequence[MirroredAppend]
) -> Unanswered[AppendMirroredResponse] | MillraceError:
    topics: dict[str, list[MirroredPartitionFields]] = {}
    for one in appends:
        topics.setdefault(one.topic, []).append(
            {
                "partition_index": one.partition,
                "log_start_offset": one.log_start_offset,
                "log_end_offset": one.end_offset,
                "records": one.records,
            }
        )
    try:
        return connection.begin(*_ask(cluster, topics))
    except MillraceError as error:
        return error


def _ask(cluster: Cluster, topics: Mapping[str, Sequence[MirroredPartitionFields]]) -> Ask[AppendMirroredResponse]:
    return APPEND_MIRRORED.ask(
        {
            "timeout_ms": cluster.timeout_ms,
            "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        }
    )


def _answers(connection: Connection, begun: Unanswered[AppendMirroredResponse] | MillraceError) -> _Answers:
    if isinstance(begun, MillraceError):
        return begun
    try:
        return _by_partition(connection.finish(begun))
    except MillraceError as error:
        return error


def _by_partition(answer: AppendMirroredResponse) -> dict[Partition, AppendedPartition]:
    return {(topic.name, one.partition_index): one for topic in answer.topics for one in topic.partitions}


def _log_of(asked: MirroredAppend, answers: _Answers) -> MirroredLog:
    if isinstance(answers, MillraceError):
        return MirroredLog(NO_OFFSET, NO_OFFSET, answers)
    subject = f"{asked.topic}-{asked.partition}"
    answer = answers.get((asked.topic, asked.partition))
    if answer is None:
        return MirroredLog(NO_OFFSET, NO_OFFSET, ClientError(f"{subject}: the broker's answer leaves it out"))
    error: MillraceError | None = None
    try:
        check(answer.error_code, subject, answer.error_message)
    except MillraceError as refused:
        error = refused
    return MirroredLog(answer.log_end_offset, answer.high_watermark, error)
