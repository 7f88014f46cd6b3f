"""Produce, versions 0 to 13 (spec A5, C3).

    v0-v2  message sets of format v0 and v1, which become batches; v2 adds the log append time to the answer
    v3-v8  one batch for each partition; v5 adds log start offset, v7 takes zstd, v8 adds record errors and a message
    v9     flexible
    v10    the answer tells who leads (KIP-951)
    v13    topics by id (KIP-516)

acks=0 has no answer: an error closes the connection, which is how its producer learns of it. acks=1 and
acks=all are answered once the high watermark covers the records, which with one replica is at once; acks=all is
refused where min.insync.replicas is above one.
A batch that an idempotent producer repeats is answered as it was the first time. Transactional produce is refused, and
so are transactional batches that come without a transactional id: nothing would ever end their transaction.
A batch that the log refuses is answered with the log start offset, one that does not get so far with -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from millrace.errors import (
    CorruptRecordError,
    InvalidRequestError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    MillraceError,
    NotLeaderError,
    RecordTooLargeError,
    RejectedRecordsError,
    StorageError,
    TransactionalIdError,
    UnknownTopicIdError,
    WireError,
)
from millrace.records.batch import Buffer, is_transactional
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.leader import NO_TOPIC_ID
from millrace.wire.produce import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    PartitionProduced,
    ProduceRequest,
    TopicProduced,
    TopicToProduce,
    encode_appended,
    encode_produce_response,
    produce_decoder,
)
from millrace_broker.cluster.topics import INTERNAL_TOPICS
from millrace_broker.handlers.answers import count_errors
from millrace_broker.handlers.api import Answers, Api, Reply, Request, Services
from millrace_broker.handlers.partitions import endpoints, leader_hint, led_partition
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.produced import batches_of, check_base_offset
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import AppendOutcome, LogAppendInfo, TopicPartition

FIRST_VERSION_WITH_LEADERS = 10
ALL_IN_SYNC = -1
ACKS = (ALL_IN_SYNC, 0, 1)
NO_OFFSET = -1
NO_PLACE = LogAppendInfo(-1, -1, -1, -1)  # there was nothing to append
SETTLED = (LogAppendInfo, MillraceError)
NO_LOG_START = (CorruptRecordError, RecordTooLargeError, StorageError)


class _Appends:
    """What requests that are handled together bring to one partition, in order, and what becomes of each."""

    def __init__(self, services: Services, key: TopicPartition) -> None:
        self.key = key
        self.outcomes: Iterator[AppendOutcome]
        self.log_start_offset = NO_OFFSET
        self._partition = _writable(services, key)
        self._offered: list[Any] = []  # batches, or what became of them already
        self._are_batches = True
        self._refused: set[MillraceError] = set()

    def offer(self, version: int, acks: int, records: Buffer) -> None:
        """Take what one request brings."""
        if isinstance(self._partition, MillraceError):
            self.settle(self._partition)
            return
        try:
            batches = self._read(self._partition, version, acks, records)
        except MillraceError as error:
            self.refuse(error)
            return
        try:
            if batches:
                self._check(self._partition, version, acks, batches)
        except MillraceError as error:
            self.settle(error)
        else:
            self._offered.append(batches) if batches else self.settle(NO_PLACE)

    def refuse(self, error: MillraceError) -> None:
        """Take what the log is not asked about."""
        self._refused.add(error)
        self.settle(error)

    def settle(self, outcome: AppendOutcome) -> None:
        """Take what is not appended."""
        self._offered.append(outcome)
        self._are_batches = False

    def append(self, replicas: ReplicaManager) -> None:
        """Append the batches; from now on there are outcomes."""
        if isinstance(self._partition, MillraceError):
            self.outcomes = iter(self._offered)
            return
        batches = self._offered if self._are_batches else [one for one in self._offered if not _is_settled(one)]
        placed = iter(replicas.append_all(self._partition, batches))
        self.outcomes = (
            placed if self._are_batches else iter([one if _is_settled(one) else next(placed) for one in self._offered])
        )
        self.log_start_offset = self._partition.log.log_start_offset

    def log_start_told_with(self, error: MillraceError) -> int:
        """The log start offset in the answer of what failed: none where the log was not asked, or could not tell."""
        return NO_OFFSET if error in self._refused or isinstance(error, NO_LOG_START) else self.log_start_offset

    @staticmethod
    def _read(partition: Partition, version: int, acks: int, records: Buffer) -> Buffer:
        batches = batches_of(version, records, partition.log.config)
        if acks not in ACKS:
            raise InvalidRequiredAcksError(f"acks={acks}: expected -1, 0 or 1")
        if batches and is_transactional(batches):
            raise TransactionalIdError("a batch of a transaction without a transactional id")
        return batches

    @staticmethod
    def _check(partition: Partition, version: int, acks: int, batches: Buffer) -> None:
        check_base_offset(version, batches)
        if acks == ALL_IN_SYNC:
            partition.check_in_sync_replicas()


def _is_settled(offered: Any) -> bool:
    return isinstance(offered, SETTLED)


_Offered = list[tuple[str, UUID, list[_Appends]]]  # where the batches of each topic's partitions went


class _Turn:
    """Requests of one version that are handled together."""

    def __init__(self, services: Services, version: int) -> None:
        self._services = services
        self._version = version
        self._partitions: dict[tuple[str, int], _Appends] = {}

    def offer(self, message: ProduceRequest) -> _Offered:
        """Take what one request brings."""
        offered: _Offered = []
        for topic in message.topic_data:
            name, topic_id, refusal = self._named(topic)
            if message.transactional_id is not None:
                refusal = InvalidRequestError("transactions are not served")
            places: list[_Appends] = []
            for one in topic.partition_data:
                appends = self._partitions.get((name, one.index)) or self._appends(name, one.index)
                if refusal is None:
                    appends.offer(self._version, message.acks, one.records or b"")
                else:
                    appends.refuse(refusal)
                places.append(appends)
            offered.append((name, topic_id, places))
        return offered

    def append(self) -> None:
        """Append all of it, each partition's batches together."""
        for appends in self._partitions.values():
            appends.append(self._services.replicas)

    def _named(self, topic: TopicToProduce) -> tuple[str, UUID, MillraceError | None]:
        if self._version < FIRST_VERSION_WITH_TOPIC_IDS:
            return topic.name, NO_TOPIC_ID, None
        topic_id = topic.topic_id or NO_TOPIC_ID
        name = self._services.metadata.topic_name(topic_id)
        return name or "", topic_id, None if name else UnknownTopicIdError(f"no topic has id {topic_id}")

    def _appends(self, name: str, partition: int) -> _Appends:
        appends = self._partitions[name, partition] = _Appends(self._services, TopicPartition(name, partition))
        return appends


def handle(services: Services, request: Request) -> Reply:
    """Append each partition's batches; a failure of one leaves the others alone."""
    (answer,) = handle_all(services, (request,))
    if isinstance(answer, WireError):
        raise answer
    return answer


def handle_all(services: Services, requests: Sequence[Request]) -> Answers:
    """Append what all of them bring, each partition's batches together, and answer them in their order."""
    version = requests[0].version
    decode = produce_decoder(version)
    turn = _Turn(services, version)
    offered: list[tuple[int, _Offered]] = []
    answers: Answers = []
    end: WireError | None = None
    for request in requests:
        try:
            message = decode(request.body)
        except WireError as error:
            end = error
            break
        offered.append((message.acks, turn.offer(message)))
    turn.append()
    for acks, topics in offered:
        try:
            answers.append(_answer(services, version, acks, topics))
        except WireError as error:
            return [*answers, error]
    return answers if end is None else [*answers, end]


def _writable(services: Services, key: TopicPartition) -> Partition | MillraceError:
    if key.topic in INTERNAL_TOPICS:
        return InvalidTopicError(f"{key.topic} is written by its coordinator alone")
    try:
        return led_partition(services, key)
    except MillraceError as error:
        return error


def _answer(services: Services, version: int, acks: int, offered: _Offered) -> Parts | None:
    """The answer, once all is appended; WireError where acks=0 allows none and something failed."""
    if acks and len(offered) == 1 and len(offered[0][2]) == 1:
        name, topic_id, (appends,) = offered[0]
        if not isinstance(outcome := next(appends.outcomes), MillraceError):
            return encode_appended(version, name, topic_id, _fixed_fields(appends, outcome))
        produced = [TopicProduced(name, topic_id, [_failed(services, version, appends, outcome)])]
    else:
        produced = [
            TopicProduced(name, topic_id, [_produced(services, version, appends) for appends in partitions])
            for name, topic_id, partitions in offered
        ]
    if acks == 0:
        _raise_first_error(produced)
        return None
    hints = [one.current_leader for topic in produced for one in topic.partitions if one.current_leader is not None]
    return encode_produce_response(version, produced, endpoints(services, hints) if hints else ())


def _produced(services: Services, version: int, appends: _Appends) -> PartitionProduced:
    outcome = next(appends.outcomes)
    if isinstance(outcome, MillraceError):
        return _failed(services, version, appends, outcome)
    return PartitionProduced(*_fixed_fields(appends, outcome))


def _fixed_fields(appends: _Appends, placed: LogAppendInfo) -> tuple[int, int, int, int, int]:
    return appends.key.partition, 0, placed.first_offset, placed.log_append_time_ms, appends.log_start_offset


def _failed(services: Services, version: int, appends: _Appends, error: MillraceError) -> PartitionProduced:
    count_errors(services, ApiKey.PRODUCE, [error.code])
    record_errors = error.record_errors if isinstance(error, RejectedRecordsError) else ()
    tells_leader = version >= FIRST_VERSION_WITH_LEADERS and isinstance(error, NotLeaderError)
    hint = leader_hint(services, appends.key) if tells_leader else None
    start = appends.log_start_told_with(error)
    return PartitionProduced(appends.key.partition, error.code, -1, -1, start, str(error), record_errors, hint)


def _raise_first_error(topics: list[TopicProduced]) -> None:
    for topic in topics:
        for partition in topic.partitions:
            if partition.error_code:
                raise WireError(
                    f"produce to {topic.name}-{partition.partition_index} with acks=0 failed: {partition.error_message}"
                )


API = Api(
    ApiKey.PRODUCE,
    VersionRange(0, 13),
    handle,
    refuses="a transactional id (INVALID_REQUEST), batches of a transaction (TRANSACTIONAL_ID_AUTHORIZATION_FAILED); "
    "what grows above 64 MiB, or 8 max.message.bytes, where its records have to be read (MESSAGE_TOO_LARGE)",
    handle_all=handle_all,
)
