"""Produce, versions 0 to 13.

    v0-v2  message sets of format v0 and v1, which become batches; v2 adds the log append time to the answer
    v3-v8  one batch for each partition; v5 adds log start offset, v7 takes zstd, v8 adds record errors and a message
    v9     flexible
    v10    the answer names the leader (KIP-951)
    v13    topics by id (KIP-516)

acks=0 has no answer: an error closes the connection, which tells the producer; what came with it is appended all the
same. acks=1 is answered once the leader has the records, acks=all once the high watermark covers them
(`replication.delayed_produce`), which with one replica is at once.
acks=all is refused while fewer replicas are in sync than the effective min ISR.
A batch that an idempotent producer repeats gets the same answer as the first time. Batches of a transaction are taken
in partitions that are in the transaction already, or, from v12 on, join it now (`handlers.produce_in_transaction`).
Where the transaction's coordinator has to be asked, the request waits, and those of the transactional id behind it.
Batches that come without a transactional id are refused, as nothing would ever end their transaction.
The answer for a batch that the log refuses has the log start offset; for one that does not reach the log it has -1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from millrace.errors import (
    CorruptRecordError,
    ErrorCode,
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
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.records.batch import HEADER_BYTES, NO_OFFSET, Buffer, is_transactional
from millrace.security.acls import AclOperation, ResourceType
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import milliseconds
from millrace.wire.encoder import Parts
from millrace.wire.produce import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    AnyProduceRequest,
    AnyTopicToProduce,
    PartitionProduced,
    TopicProduced,
    encode_produce_response,
    produce_decoder,
)
from millrace.wire.produce_one import ProducePlace, one_produce_reader, produce_place
from millrace_broker.handlers import produce_in_transaction
from millrace_broker.handlers.answers import count_errors
from millrace_broker.handlers.api import Answer, Answers, Api, Guard, Reply, Request, Services
from millrace_broker.handlers.partitions import endpoints, leader_hint, not_led
from millrace_broker.handlers.produce_in_transaction import Refusals, refusals_of
from millrace_broker.replication.delayed_produce import Appended, when_all_have
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.produced import (
    FIRST_VERSION_WITH_ZSTD,
    batches_of,
    check_base_offset,
    is_plain_batch,
)
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.security.client_session import ClientSession
from millrace_broker.storage import AppendOutcome, LogAppendInfo, TopicPartition
from millrace_broker.txns.verification import Verification

FIRST_VERSION_WITH_LEADERS = 10
ALL_IN_SYNC = -1
ACKS = (ALL_IN_SYNC, 0, 1)
NO_PLACE = LogAppendInfo(-1, -1, -1, -1)  # where there is nothing to append
SETTLED = (LogAppendInfo, MillraceError)
NO_REFUSALS: Refusals = {}
NONE_REFUSED: frozenset[MillraceError] = frozenset()
GUARD = Guard(ApiKey.PRODUCE, AclOperation.WRITE, ResourceType.TOPIC)
TRANSACTION_GUARD = Guard(ApiKey.PRODUCE, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
KAFKAS_SENTENCES = {  # Kafka's answer has no message then, and its clients say these
    ErrorCode.MESSAGE_TOO_LARGE: "The request included a message larger than the max message size the server will "
    "accept.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The request attempted to perform an operation on an invalid topic.",
}
NO_LOG_START = (CorruptRecordError, RecordTooLargeError, StorageError)


class _Appends:
    """The batches that requests bring to one partition, in their order, and the outcome of each."""

    __slots__ = (
        "_are_batches", "_offered", "_partition", "_refused", "_takes_plain_batches", "has_followers", "key",
        "log_start_offset", "outcomes",
    )  # fmt: skip

    def __init__(self, services: Services, version: int, key: TopicPartition, session: ClientSession) -> None:
        self.key = key
        self.outcomes: Iterator[AppendOutcome]
        self.log_start_offset = NO_OFFSET
        self._partition = partition = _writable(services, key, session)
        self.has_followers = self._takes_plain_batches = False
        if isinstance(partition, Partition):
            self.has_followers = partition.in_sync is not None
            self._takes_plain_batches = version >= FIRST_VERSION_WITH_ZSTD and partition.has_in_sync_replicas
        self._offered: list[Any] = []  # batches, and outcomes of those that are not appended
        self._are_batches = True
        self._refused: frozenset[MillraceError] = NONE_REFUSED

    def offer(self, version: int, acks: int, records: Buffer, *, has_transactional_id: bool = False) -> None:
        """Takes the records of one request."""
        if self._takes_plain_batches and acks in ACKS and is_plain_batch(records):
            self._offered.append(records)
            return
        if isinstance(self._partition, MillraceError):
            self.settle(self._partition)
            return
        try:
            batches = self._read(self._partition, version, acks, records)
            if batches and not has_transactional_id and is_transactional(batches):
                raise TransactionalIdError(
                    "the batch belongs to a transaction, but the request has no transactional id"
                )
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
        """Takes the error of records that do not reach the log."""
        self._refused |= {error}
        self.settle(error)

    def settle(self, outcome: AppendOutcome) -> None:
        """Takes the outcome of records that are not appended."""
        self._offered.append(outcome)
        self._are_batches = False

    def append(self, replicas: ReplicaManager) -> None:
        """Appends the batches, and sets `outcomes`."""
        if isinstance(self._partition, MillraceError):
            self.outcomes = iter(self._offered)
            return
        batches = self._offered if self._are_batches else [one for one in self._offered if not _is_settled(one)]
        placed = iter(replicas.append_all(self._partition, batches))
        self.outcomes = (
            placed if self._are_batches else iter([one if _is_settled(one) else next(placed) for one in self._offered])
        )
        self.log_start_offset = self._partition.log.log_start_offset

    def to_wait_for(self, outcome: LogAppendInfo) -> Appended:
        """Returns what the in-sync replicas need to have before an append with acks=all is answered."""
        assert isinstance(self._partition, Partition), "it was appended to"
        return Appended(self._partition.leader_epoch, outcome.last_offset + 1)

    def log_start_told_with(self, error: MillraceError) -> int:
        """Returns the log start offset for the answer to an error; -1 where the records did not reach the log."""
        return NO_OFFSET if error in self._refused or isinstance(error, NO_LOG_START) else self.log_start_offset

    @staticmethod
    def _read(partition: Partition, version: int, acks: int, records: Buffer) -> Buffer:
        batches = batches_of(version, records, partition.log.config)
        if acks not in ACKS:
            raise InvalidRequiredAcksError(f"acks={acks}: expected -1, 0 or 1")
        return batches

    @staticmethod
    def _check(partition: Partition, version: int, acks: int, batches: Buffer) -> None:
        check_base_offset(version, batches)
        if acks == ALL_IN_SYNC:
            partition.check_in_sync_replicas()


def _is_settled(offered: object) -> bool:
    return isinstance(offered, SETTLED)


_Offered = list[tuple[str, UUID, list[_Appends]]]  # a request's partitions, by topic
_OfferedOne = tuple[ProducePlace, _Appends]  # the only partition of a request
_Later = asyncio.Future[Answer]  # the answer to a request that waits for the coordinator of its transaction
_Taken = tuple[int, int, _Offered | _OfferedOne | _Later]  # acks, timeout in ms, partitions


class _Client(NamedTuple):
    """What the answers to requests depend on: their version, and the session in which they came."""

    version: int
    session: ClientSession


class _Turn:
    """Requests of one version that are handled together."""

    def __init__(self, services: Services, client: _Client) -> None:
        self._services = services
        self._client = client
        self._version = client.version
        self._partitions: dict[TopicPartition, _Appends] = {}
        self._places: dict[bytes, tuple[ProducePlace, _Appends]] = {}
        self._read_one = one_produce_reader(client.version)
        self.decode = produce_decoder(client.version)

    def take(self, body: memoryview) -> _Taken:
        """Takes one request, and returns its acks, its timeout in milliseconds and its partitions. WireError."""
        one = self._read_one(body)
        if one is not None:
            acks, timeout_ms, place, records = one
            found = self._places.get(place) or self._found(place)
            if found is not None:
                found[1].offer(self._version, acks, records)
                return acks, timeout_ms, found
        message = self.decode(body)
        if message.transactional_id is None:
            return message.acks, milliseconds(message.timeout), self.offer(message)
        offered = self._offer_in_transaction(message, message.transactional_id, body)
        return message.acks, milliseconds(message.timeout), offered

    def _found(self, place: bytes) -> _OfferedOne | None:
        """Returns the only partition of a request; None where its topic's id is not known."""
        known = produce_place(self._version, place)
        name: str | None = known.name
        if self._version >= FIRST_VERSION_WITH_TOPIC_IDS:
            name = self._services.metadata.topic_name(known.topic_id)
        if name is None:
            return None
        appends = self._appends(name, known.partition)
        found = self._places[place] = known, appends
        return found

    def _offer_in_transaction(
        self, message: AnyProduceRequest, transactional_id: str, body: memoryview
    ) -> _Offered | _Later:
        if self._is_denied(message, transactional_id):
            denied = TRANSACTION_GUARD.denied()
            return self.offer(message, {key: denied for key, _ in self._named_partitions(message)})
        in_order = self._services.produced_in_order
        refusals = None if in_order.is_busy(transactional_id) else self.refusals(message)
        if refusals is not None and not isinstance(refusals, Verification):
            return self.offer(message, refusals)
        kept = bytes(body)
        handling = in_order.put(transactional_id, lambda: self._handle_later(kept, refusals))
        return asyncio.ensure_future(_whole(handling))

    async def _handle_later(self, body: bytes, verification: Verification | None) -> Reply:
        """Handles a request of a transaction, once its turn has come and the coordinator has answered."""
        turn = _Turn(self._services, self._client)
        message = turn.decode(memoryview(body))
        refusals = verification or turn.refusals(message)
        if isinstance(refusals, Verification):
            refusals = refusals_of(await refusals.errors())
        offered = turn.offer(message, refusals)  # the guards hold until the append, so nothing is waited for here
        turn.append()
        return _answer_several(self._services, self._client, message.acks, milliseconds(message.timeout), offered)

    def offer(self, message: AnyProduceRequest, refusals: Refusals = NO_REFUSALS) -> _Offered:
        """Takes the records of one request, except for those that are refused, and returns its partitions."""
        offered: _Offered = []
        in_transaction = message.transactional_id is not None
        for topic in message.topic_data:
            name, topic_id, refusal = self._named(topic)
            places: list[_Appends] = []
            for one in topic.partition_data:
                appends = self._appends(name, one.index)
                refused = refusal or (refusals.get(appends.key) if refusals else None)
                if refused is None:
                    appends.offer(self._version, message.acks, one.records or b"", has_transactional_id=in_transaction)
                else:
                    appends.refuse(refused)
                places.append(appends)
            offered.append((name, topic_id, places))
        return offered

    def refusals(self, message: AnyProduceRequest) -> Refusals | Verification:
        """Returns as `produce_in_transaction.refusals` does for one request; what is denied does not get there."""
        offered = [
            (key, records)
            for key, records in self._named_partitions(message)
            if GUARD.permits(self._services, self._client.session, key.topic)
        ]
        return produce_in_transaction.refusals(self._services, self._version, message.transactional_id or "", offered)

    def _named_partitions(self, message: AnyProduceRequest) -> list[tuple[TopicPartition, Buffer | None]]:
        return [
            (TopicPartition(self._named(topic)[0], one.index), one.records)
            for topic in message.topic_data
            for one in topic.partition_data
        ]

    def _is_denied(self, message: AnyProduceRequest, transactional_id: str) -> bool:
        """Returns whether a request has records of a transaction that its client may not write."""
        return not TRANSACTION_GUARD.permits(self._services, self._client.session, transactional_id) and any(
            records and len(records) >= HEADER_BYTES and is_transactional(records)
            for _, records in self._named_partitions(message)
        )

    def append(self) -> None:
        """Appends all batches, those of a partition together."""
        for appends in self._partitions.values():
            appends.append(self._services.replicas)

    def _named(self, topic: AnyTopicToProduce) -> tuple[str, UUID, MillraceError | None]:
        if self._version < FIRST_VERSION_WITH_TOPIC_IDS:
            return topic.name, NO_TOPIC_ID, None
        topic_id = topic.topic_id or NO_TOPIC_ID
        name = self._services.metadata.topic_name(topic_id)
        return name or "", topic_id, None if name else UnknownTopicIdError(f"no topic has id {topic_id}")

    def _appends(self, name: str, partition: int) -> _Appends:
        key = tuple.__new__(TopicPartition, (name, partition))  # as the class does, at half the cost
        appends = self._partitions.get(key)
        if appends is None:
            appends = self._partitions[key] = _Appends(self._services, self._version, key, self._client.session)
        return appends


def handle(services: Services, request: Request) -> Reply:
    """Appends each partition's batches; a failure of one does not affect the others."""
    (answer,) = handle_all(services, (request,))
    if isinstance(answer, WireError):
        raise answer
    return answer


def handle_all(services: Services, requests: Sequence[Request]) -> Answers:
    """Appends the batches of all requests, those of a partition together, and returns the answers in their order."""
    first = requests[0]
    client = tuple.__new__(_Client, (first.version, first.session))  # as the class does, at half the cost
    turn = _Turn(services, client)
    offered: list[_Taken] = []
    answers: Answers = []
    end: WireError | None = None
    for request in requests:
        try:
            offered.append(turn.take(request.body))
        except WireError as error:
            end = error
            break
    turn.append()
    try:
        for acks, timeout_ms, places in offered:
            answers.append(_answer(services, client, acks, timeout_ms, places))
    except WireError as error:
        end = error
    return answers if end is None else [*answers, end]


async def _whole(handling: asyncio.Task[Reply]) -> Answer:
    """Returns the answer of a request that waits first to be handled, and then for the replicas."""
    reply = await handling
    return await reply if isinstance(reply, asyncio.Future) else reply


def _writable(services: Services, key: TopicPartition, session: ClientSession) -> Partition | MillraceError:
    if services.authorizer is not None and key.topic and not GUARD.permits(services, session, key.topic):
        return GUARD.denied()
    if key.topic in INTERNAL_TOPICS:
        return InvalidTopicError(f"{key.topic} is written by its coordinator alone")
    return services.replicas.partitions.get(key) or not_led(services, key)


def _answer(
    services: Services,
    client: _Client,
    acks: int,
    timeout_ms: int,
    offered: _Offered | _OfferedOne | _Later,
) -> Reply:
    """Returns the answer once all batches are appended; WireError where one failed and acks=0 allows no answer."""
    if not isinstance(offered, tuple):
        if isinstance(offered, asyncio.Future):
            return offered
        return _answer_several(services, client, acks, timeout_ms, offered)
    place, appends = offered
    if appends.has_followers and acks == ALL_IN_SYNC:
        return _answer_several(services, client, acks, timeout_ms, [(place.name, place.topic_id, [appends])])
    outcome = next(appends.outcomes)
    if not isinstance(outcome, MillraceError):
        first_offset, _, log_append_time_ms, _ = outcome
        return [place.appended(first_offset, log_append_time_ms, appends.log_start_offset)] if acks else None
    failed = TopicProduced(place.name, place.topic_id, [_failed(services, client.version, appends, outcome)])
    return _encoded(services, client, acks, [failed])


def _answer_several(services: Services, client: _Client, acks: int, timeout_ms: int, offered: _Offered) -> Reply:
    appended: dict[TopicPartition, Appended] = {}
    produced: list[TopicProduced] = []
    for name, topic_id, partitions in offered:
        outcomes = [(appends, next(appends.outcomes)) for appends in partitions]
        produced.append(TopicProduced(name, topic_id, [_produced(services, client.version, *one) for one in outcomes]))
        for appends, outcome in outcomes:
            if appends.has_followers and acks == ALL_IN_SYNC and not isinstance(outcome, MillraceError):
                appended[appends.key] = appends.to_wait_for(outcome)
    if not appended:
        return _encoded(services, client, acks, produced)
    later = partial(_answer_replicated, services, client, produced)
    return when_all_have(services.replicas, appended, timeout_ms, later)


def _answer_replicated(
    services: Services,
    client: _Client,
    produced: list[TopicProduced],
    failed: Mapping[TopicPartition, ErrorCode],
) -> Parts:
    """Returns the answer to appends, some of which the in-sync replicas failed to get; these keep their offsets."""
    if failed:
        count_errors(services, ApiKey.PRODUCE, failed.values())
        produced = [
            topic._replace(
                partitions=[_with_error(services, client.version, topic.name, one, failed) for one in topic.partitions]
            )
            for topic in produced
        ]
    return _encode(services, client, produced)


def _with_error(
    services: Services, version: int, name: str, one: PartitionProduced, failed: Mapping[TopicPartition, ErrorCode]
) -> PartitionProduced:
    key = TopicPartition(name, one.partition_index)
    code = failed.get(key)
    if code is None or one.error_code:
        return one
    tells_leader = version >= FIRST_VERSION_WITH_LEADERS and code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    return one._replace(error_code=code, current_leader=leader_hint(services, key) if tells_leader else None)


def _encoded(services: Services, client: _Client, acks: int, produced: list[TopicProduced]) -> Parts | None:
    if acks == 0:
        _raise_first_error(produced)
        return None
    return _encode(services, client, produced)


def _encode(services: Services, client: _Client, produced: list[TopicProduced]) -> Parts:
    hints = [one.current_leader for topic in produced for one in topic.partitions if one.current_leader is not None]
    return encode_produce_response(
        client.version, produced, endpoints(services, hints, client.session.listener) if hints else ()
    )


def _produced(services: Services, version: int, appends: _Appends, outcome: AppendOutcome) -> PartitionProduced:
    if isinstance(outcome, MillraceError):
        return _failed(services, version, appends, outcome)
    return PartitionProduced(
        appends.key.partition, 0, outcome.first_offset, outcome.log_append_time_ms, appends.log_start_offset
    )


def _failed(services: Services, version: int, appends: _Appends, error: MillraceError) -> PartitionProduced:
    count_errors(services, ApiKey.PRODUCE, [error.code])
    record_errors = error.record_errors if isinstance(error, RejectedRecordsError) else ()
    tells_leader = version >= FIRST_VERSION_WITH_LEADERS and isinstance(error, NotLeaderError)
    hint = leader_hint(services, appends.key) if tells_leader else None
    start = appends.log_start_told_with(error)
    said = f"{KAFKAS_SENTENCES[error.code]} {error}" if error.code in KAFKAS_SENTENCES else str(error)
    return PartitionProduced(appends.key.partition, error.code, -1, -1, start, said, record_errors, hint)


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
    refuses="batches of a transaction without a transactional id (TRANSACTIONAL_ID_AUTHORIZATION_FAILED); "
    "what grows above 64 MiB, or 8 max.message.bytes, where its records have to be read (MESSAGE_TOO_LARGE)",
    handle_all=handle_all,
    guards=(GUARD, TRANSACTION_GUARD),
)
