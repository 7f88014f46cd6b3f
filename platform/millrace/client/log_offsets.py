"""Where the logs of many partitions start and end, and since when, asked of their leaders together (ListOffsets).

    metadata ──► the partitions of each leader, PARTITIONS_PER_REQUEST at a time
    of each leader: earliest, latest[, latest committed]   sent one behind the other, to all leaders before any answers

So a look waits for as many round trips as the leader with the most partitions gets requests, and one for the metadata:
10,000 partitions of one leader take six. An error of one partition is that partition's answer, and spoils no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from millrace.addresses import Address
from millrace.client.answers import check, is_retriable
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection, Unanswered
from millrace.client.fetched import IsolationLevel
from millrace.client.metadata import ClusterMetadata, Partition, indexes_by_topic
from millrace.client.simple_consumer import CONSUMER, EARLIEST, LATEST
from millrace.errors import ClientError, MillraceError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.wire.messages import LIST_OFFSETS

if TYPE_CHECKING:
    from millrace.wire.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse

PARTITIONS_PER_REQUEST = 2000  # an answer of 54 kB: the answers to all questions fit into the buffers of a socket


class LogOffsets(NamedTuple):
    """A partition's log start offset, the offset after its last readable record, and where the log itself ends.

    `end_offset` is below `high_watermark` where committed records were asked for and transactions are open; if
    `high_watermark` is None, the two are equal. `leader_epoch` is the answering leader's, -1 before Kafka 2.1.
    """

    start_offset: int
    end_offset: int
    high_watermark: int | None = None
    leader_epoch: int = NO_LEADER_EPOCH

    @property
    def log_end(self) -> int:
        """The high watermark: where records end, whether or not they belong to open transactions."""
        return self.end_offset if self.high_watermark is None else self.high_watermark


class _Question(NamedTuple):
    timestamp: int
    isolation: IsolationLevel


# In the order of the offsets, so that no answer of a log that moves meanwhile contradicts the one before.
_QUESTIONS: Mapping[IsolationLevel, tuple[_Question, ...]] = {
    IsolationLevel.READ_UNCOMMITTED: (
        _Question(EARLIEST, IsolationLevel.READ_UNCOMMITTED),
        _Question(LATEST, IsolationLevel.READ_UNCOMMITTED),
    ),
    IsolationLevel.READ_COMMITTED: (
        _Question(EARLIEST, IsolationLevel.READ_UNCOMMITTED),
        _Question(LATEST, IsolationLevel.READ_COMMITTED),
        _Question(LATEST, IsolationLevel.READ_UNCOMMITTED),
    ),
}

_THE_EPOCH_MS = 0  # the first record that is not older than this: the first one that has a time
_FIRST_TIME = (_Question(_THE_EPOCH_MS, IsolationLevel.READ_UNCOMMITTED),)

_Value = TypeVar("_Value")
_Answers: TypeAlias = "Sequence[ListOffsetsPartitionResponse]"


def read_log_offsets(
    cluster: Cluster,
    partitions: Iterable[Partition],
    isolation: IsolationLevel,
    *,
    metadata: ClusterMetadata | None = None,
) -> dict[Partition, LogOffsets | MillraceError]:
    """Returns the offsets of each partition's log, or the error that came instead; raises none itself.

    Partitions whose error may pass, such as that of a leader that has moved, are asked for once more.

    Args:
        cluster: The cluster whose leaders are asked.
        partitions: (topic, partition); the result is in the same order.
        isolation: Where the readable records end: at the high watermark, or at the last stable offset (KIP-98).
        metadata: Fresh metadata of these topics, if at hand, which spares the first request.
    """
    return _read(cluster, partitions, _QUESTIONS[isolation], _offsets, metadata)


def read_first_times(
    cluster: Cluster, partitions: Iterable[Partition], *, metadata: ClusterMetadata | None = None
) -> dict[Partition, int | MillraceError | None]:
    """Returns the time (ms since 1970) of the first record in each partition's log, or the error that came instead.

    It is None where no record has a time, as in an empty log. Arguments and errors are those of `read_log_offsets`.
    """
    return _read(cluster, partitions, _FIRST_TIME, _first_time, metadata)


def _read(
    cluster: Cluster,
    partitions: Iterable[Partition],
    questions: Sequence[_Question],
    value: Callable[[_Answers], _Value],
    metadata: ClusterMetadata | None,
) -> dict[Partition, _Value | MillraceError]:
    """Returns the value that `value` makes of the answers of each partition, or the error of one of them."""
    wanted = list(dict.fromkeys(partitions))
    found = _look(cluster, wanted, questions, value, metadata)
    passing = [one for one, answer in found.items() if isinstance(answer, MillraceError) and is_retriable(answer)]
    if passing:
        found |= _look(cluster, passing, questions, value, None)
    return {one: found[one] for one in wanted}


def _look(
    cluster: Cluster,
    wanted: Sequence[Partition],
    questions: Sequence[_Question],
    value: Callable[[_Answers], _Value],
    metadata: ClusterMetadata | None,
) -> dict[Partition, _Value | MillraceError]:
    if not wanted:
        return {}
    try:
        metadata = metadata or cluster.metadata(sorted({topic for topic, _ in wanted}))
    except MillraceError as error:
        return dict.fromkeys(wanted, error)
    found: dict[Partition, _Value | MillraceError] = {}
    by_leader: dict[Address, list[Partition]] = {}
    for one in wanted:
        try:
            by_leader.setdefault(metadata.leader(*one).address, []).append(one)
        except MillraceError as error:
            found[one] = error
    return found | _ask(cluster, by_leader, questions, value)


def _ask(
    cluster: Cluster,
    by_leader: Mapping[Address, Sequence[Partition]],
    questions: Sequence[_Question],
    value: Callable[[_Answers], _Value],
) -> dict[Partition, _Value | MillraceError]:
    """Returns a value or an error by partition; asks all leaders at once, and none again that has failed."""
    found: dict[Partition, _Value | MillraceError] = {}
    lost: dict[Address, MillraceError] = {}
    for batches in zip_longest(*(_batches(address, partitions) for address, partitions in by_leader.items())):
        sent: list[tuple[_Batch, _Sent]] = []
        for batch in filter(None, batches):
            try:
                if batch.leader not in lost:
                    sent.append((batch, _send(cluster.connection_to(batch.leader), batch.partitions, questions)))
            except MillraceError as error:
                lost[batch.leader] = error
        for batch, awaited in sent:
            try:
                answers = [_by_partition(awaited.connection.finish(one)) for one in awaited.questions]
                found |= {one: _value(one, [answer.get(one) for answer in answers], value) for one in batch.partitions}
            except MillraceError as error:
                lost[batch.leader] = error
    unanswered = ((one, lost[leader]) for leader in lost for one in by_leader[leader] if one not in found)
    return found | dict(unanswered)


class _Batch(NamedTuple):
    leader: Address
    partitions: Sequence[Partition]


class _Sent(NamedTuple):
    """The ListOffsets requests that were sent on a connection, in the order in which to read the responses."""

    connection: Connection
    questions: Sequence[Unanswered[ListOffsetsResponse]]


def _batches(leader: Address, partitions: Sequence[Partition]) -> list[_Batch]:
    return [
        _Batch(leader, partitions[index : index + PARTITIONS_PER_REQUEST])
        for index in range(0, len(partitions), PARTITIONS_PER_REQUEST)
    ]


def _send(connection: Connection, partitions: Sequence[Partition], questions: Sequence[_Question]) -> _Sent:
    by_topic = indexes_by_topic(partitions).items()
    asks = [
        LIST_OFFSETS.ask(
            {
                "replica_id": CONSUMER,
                "isolation_level": question.isolation,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {"partition_index": index, "timestamp": question.timestamp} for index in indexes
                        ],
                    }
                    for topic, indexes in by_topic
                ],
            }
        )
        for question in questions
    ]
    return _Sent(connection, [connection.begin(*ask) for ask in asks])


def _by_partition(answer: ListOffsetsResponse) -> dict[Partition, ListOffsetsPartitionResponse]:
    listed = ([(topic.name, one) for one in topic.partitions] for topic in answer.topics)
    return {(topic, one.partition_index): one for topic, one in chain.from_iterable(listed)}


def _value(
    partition: Partition,
    answers: Sequence[ListOffsetsPartitionResponse | None],
    value: Callable[[_Answers], _Value],
) -> _Value | MillraceError:
    subject = f"offsets of {partition[0]}-{partition[1]}"
    given: list[ListOffsetsPartitionResponse] = []
    for answer in answers:
        if answer is None:
            return ClientError(f"{subject}: the broker's answer leaves it out")
        try:
            check(answer.error_code, subject)
        except MillraceError as error:
            return error
        given.append(answer)
    return value(given)


def _offsets(answers: _Answers) -> LogOffsets:
    # The last question is for the end: its answer has the leader's epoch.
    return LogOffsets(*(int(one.offset) for one in answers))._replace(leader_epoch=int(answers[-1].leader_epoch))


def _first_time(answers: _Answers) -> int | None:
    [answer] = answers
    return int(answer.timestamp) if answer.timestamp >= 0 else None
