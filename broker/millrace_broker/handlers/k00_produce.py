"""Produce, versions 0 to 13.

    v0-v2  message sets of format v0 and v1, which become batches; v2 adds the log append time to the response
    v3-v8  one batch for each partition; v5 adds log start offset, v7 takes zstd, v8 adds record errors and a message
    v9     flexible
    v10    the response names the leader (KIP-951)
    v13    topics by id (KIP-516)

acks=0 has no response: an error closes the connection, which tells the producer; what came with it is appended all the
same. acks=1 is answered once the leader has the records, and has synced them where the topic demands that; acks=all
once the high watermark covers them, too (`replication.delayed_requests`), which with one replica is at once.
acks=all is refused while fewer replicas are in sync than the effective min ISR.
A batch that an idempotent producer repeats gets the same response as the first time. Batches of a transaction are taken
in partitions that are in the transaction already, or, from v12 on, join it now (`handlers.produce_appends`).
Where the transaction's coordinator has to be asked, the request waits, and those of the transactional id behind it.
So does a request whose records take long to check, and those of its connection (`handlers.produce_appends`).
Batches that come without a transactional id are refused, as nothing would ever end their transaction.
The response for a batch that the log refuses has the log start offset; for one that does not reach the log it has -1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple
from uuid import UUID

from millrace.errors import (
    ErrorCode,
    MillraceError,
    NotLeaderError,
    RejectedRecordsError,
    UnknownTopicIdError,
    WireError,
)
from millrace.records.batch import HEADER_BYTES, Buffer, is_transactional
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, has_turns, later, pause, undivided
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import milliseconds
from millrace.wire.encoder import Parts
from millrace.wire.produce import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    AnyProduceRequest,
    AnyTopicToProduce,
    PartitionProduced,
    ProducePlace,
    TopicProduced,
    decode_produce_request,
    encode_produce_response,
    has_many_partitions,
    one_produce_reader,
    produce_place,
)
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Response, Responses, Services
from millrace_broker.handlers.partitions import endpoints, leader_hint
from millrace_broker.handlers.produce_appends import (
    GUARD,
    Appends,
    Outcome,
    Preparation,
    Refusals,
    prepared_at_once,
    prepared_here,
    prepared_in_thread,
    refusals_in_transaction,
    refusals_of,
)
from millrace_broker.handlers.responses import count_errors
from millrace_broker.replication.delayed_requests import Appended, when_all_have
from millrace_broker.security.client_session import ClientSession
from millrace_broker.storage import AppendOutcome, TopicPartition
from millrace_broker.txns.admission import Verification

FIRST_VERSION_WITH_LEADERS = 10
NO_REFUSALS: Refusals = {}
TRANSACTION_GUARD = Guard(ApiKey.PRODUCE, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
KAFKAS_SENTENCES = {  # Kafka's response has no message then, and its clients say these
    ErrorCode.MESSAGE_TOO_LARGE: "The request included a message larger than the max message size the server will "
    "accept.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The request attempted to perform an operation on an invalid topic.",
}


_Offered = list[tuple[str, UUID, list[Appends]]]  # a request's partitions, by topic
_OfferedOne = tuple[ProducePlace, Appends]  # the only partition of a request
_Later = asyncio.Future[Response]  # the response to a request that waits before it is handled
_Taken = tuple[int, int, _Offered | _OfferedOne | _Later]  # acks, timeout in ms, partitions


class _Client(NamedTuple):
    """The version and the client session that several Produce requests share, and that their responses depend on."""

    version: int
    session: ClientSession


class _Turn:
    """Produce requests of one version and one session that are appended together: `take` each, then `append` once."""

    def __init__(self, services: Services, client: _Client) -> None:
        self._services = services
        self._client = client
        self._version = client.version
        self._partitions: dict[TopicPartition, Appends] = {}
        self._places: dict[bytes, tuple[ProducePlace, Appends]] = {}
        session = client.session
        self._connection = id(session.authenticator or session)  # held by `_client` while a request waits
        self._waits = services.produced_in_order.is_busy(self._connection)
        self._read_one = one_produce_reader(client.version)

    def take(self, body: memoryview) -> _Taken:
        """Takes a request; returns acks, timeout in ms, and its partitions or future response. Raises WireError."""
        one = None if self._waits else self._read_one(body)
        if one is not None:
            acks, timeout_ms, place, records = one
            found = self._places.get(place) or self._found(place)
            if found is not None and (found[1].offer_plain(acks, records) or self._offer_one(found[1], acks, records)):
                return acks, timeout_ms, found
        message = decode_produce_request(self._version, body)
        return message.acks, milliseconds(message.timeout), self._take_message(message, body)

    def _offer_one(self, appends: Appends, acks: int, records: Buffer) -> bool:
        """Checks and takes a request's records, of one partition; returns False, and takes none, if that takes long."""
        steps = appends.preparation(self._version, records, self._services.clock.now_ms())
        prepared = prepared_at_once([(steps, len(records))])
        if prepared is not None:
            appends.offer(self._version, acks, records, prepared[0])
        return prepared is not None

    def _found(self, place: bytes) -> _OfferedOne | None:
        """Returns the partition that the bytes `place` name, and its Appends; None for an unknown topic id."""
        known = produce_place(self._version, place)
        name: str | None = known.name
        if self._version >= FIRST_VERSION_WITH_TOPIC_IDS:
            name = self._services.metadata.topic_name(known.topic_id)
        if name is None:
            return None
        appends = self._appends(name, known.partition)
        found = self._places[place] = known, appends
        return found

    def _take_message(self, message: AnyProduceRequest, body: memoryview) -> _Offered | _Later:
        transactional_id = message.transactional_id
        if transactional_id is not None and self._is_denied(message, transactional_id):
            denied = TRANSACTION_GUARD.denied()
            return self.offer(message, refusals={key: denied for key, _ in self._named_partitions(message)})
        in_order = self._services.produced_in_order
        key = self._connection if transactional_id is None else transactional_id
        if has_turns():
            return later(self._handle_in_turns(message, key))
        prepared = None if in_order.is_busy(key) else prepared_at_once(self.preparations(message))
        refusals: Refusals | Verification = NO_REFUSALS
        if prepared is not None and transactional_id is not None:
            refusals = self.refusals(message)
        if prepared is not None and not isinstance(refusals, Verification):
            return self.offer(message, prepared, refusals)
        kept, verification = bytes(body), refusals if isinstance(refusals, Verification) else None
        self._waits = self._waits or transactional_id is None
        handling = in_order.put(key, lambda: self._handle_later(kept, verification))
        return asyncio.ensure_future(_whole(handling))

    async def _handle_later(self, body: bytes, verification: Verification | None) -> Reply:
        """Handles a request that had to wait: checks its records, asks the transaction's coordinator, appends them."""
        before = _Turn(self._services, self._client)
        message = decode_produce_request(self._version, body)
        steps = [steps for steps, _ in before.preparations(message)]
        prepared = await prepared_in_thread(self._services.workers, steps)
        turn = _Turn(self._services, self._client)
        refusals = verification or (NO_REFUSALS if message.transactional_id is None else turn.refusals(message))
        if isinstance(refusals, Verification):
            refusals = refusals_of(await refusals.errors())
        offered = turn.offer(message, prepared, refusals)  # the guards hold until the append: nothing is waited for
        turn.append()
        return _respond_several(self._services, self._client, message.acks, milliseconds(message.timeout), offered)

    async def _handle_in_turns(self, message: AnyProduceRequest, key: Hashable) -> Response:
        """Handles a request of many partitions with interruptions, after the earlier ones of its connection (`key`)."""
        await self._services.produced_in_order.until_idle(key)
        prepared = prepared_here([steps for steps, _ in each(self.preparations(message))])
        turn, transactional_id = _Turn(self._services, self._client), message.transactional_id
        refusals = NO_REFUSALS if transactional_id is None else turn.refusals(message)
        if isinstance(refusals, Verification):
            refusals = refusals_of(await refusals.errors())
        with nullcontext() if transactional_id is None else undivided():  # as for the guards above
            offered = turn.offer(message, prepared, refusals)
            turn.append()
        acks, timeout_ms = message.acks, milliseconds(message.timeout)
        del message, prepared  # what is freed at once, with all the rest, would be twice as much
        reply = _respond_several(self._services, self._client, acks, timeout_ms, offered)
        return await reply if isinstance(reply, asyncio.Future) else reply

    def preparations(self, message: AnyProduceRequest) -> Iterator[tuple[Preparation, int]]:
        """Yields, for each partition of a request, the steps that check its records, and the size of these in bytes."""
        now_ms = self._services.clock.now_ms()
        for key, records in self._named_partitions(message):
            appends = self._appends(*key)
            yield appends.preparation(self._version, records or b"", now_ms), len(records or b"")

    def offer(
        self, message: AnyProduceRequest, prepared: Sequence[Outcome] = (), refusals: Refusals = NO_REFUSALS
    ) -> _Offered:
        """Adds a request's records, or the errors that refuse them, to each partition's Appends; returns these."""
        offered: _Offered = []
        outcomes = iter(prepared)
        in_transaction = message.transactional_id is not None
        for topic in message.topic_data:
            name, topic_id, refusal = self._named(topic)
            places: list[Appends] = []
            for one in topic.partition_data:
                pause()
                appends, outcome = self._appends(name, one.index), next(outcomes, None)
                refused = refusal or (refusals.get(appends.key) if refusals else None)
                if refused is None:
                    appends.offer(
                        self._version, message.acks, one.records or b"", outcome, has_transactional_id=in_transaction
                    )
                else:
                    appends.refuse(refused)
                places.append(appends)
            offered.append((name, topic_id, places))
        return offered

    def refusals(self, message: AnyProduceRequest) -> Refusals | Verification:
        """Returns the error of each partition that the transaction may not write to, or a Verification, which asks."""
        offered = [
            (key, records)
            for key, records in self._named_partitions(message)
            if GUARD.permits(self._services, self._client.session, key.topic)
        ]
        return refusals_in_transaction(self._services, self._version, message.transactional_id or "", offered)

    def _named_partitions(self, message: AnyProduceRequest) -> Iterator[tuple[TopicPartition, Buffer | None]]:
        for topic in message.topic_data:
            name, _, _ = self._named(topic)
            for one in topic.partition_data:
                yield TopicPartition(name, one.index), one.records

    def _is_denied(self, message: AnyProduceRequest, transactional_id: str) -> bool:
        """Returns whether a request has transactional records, but no right to write with its transactional id."""
        return not TRANSACTION_GUARD.permits(self._services, self._client.session, transactional_id) and any(
            records and len(records) >= HEADER_BYTES and is_transactional(records)
            for _, records in self._named_partitions(message)
        )

    def append(self) -> None:
        """Appends the batches of all requests that were taken, in one append for each partition."""
        for appends in self._partitions.values():
            pause()
            appends.append(self._services.replicas)

    def _named(self, topic: AnyTopicToProduce) -> tuple[str, UUID, MillraceError | None]:
        if self._version < FIRST_VERSION_WITH_TOPIC_IDS:
            return topic.name, NO_TOPIC_ID, None
        topic_id = topic.topic_id or NO_TOPIC_ID
        name = self._services.metadata.topic_name(topic_id)
        return name or "", topic_id, None if name else UnknownTopicIdError(f"no topic has id {topic_id}")

    def _appends(self, name: str, partition: int) -> Appends:
        key = tuple.__new__(TopicPartition, (name, partition))  # as the class does, at half the cost
        appends = self._partitions.get(key)
        if appends is None:
            appends = self._partitions[key] = Appends(self._services, self._version, key, self._client.session)
        return appends


def handle(services: Services, request: Request) -> Reply:
    """Handles Produce: appends each partition's batches; a failure of one partition does not affect the others."""
    (response,) = handle_all(services, (request,))
    if isinstance(response, WireError):
        raise response
    return response


def handle_all(services: Services, requests: Sequence[Request]) -> Responses:
    """Appends the batches of all requests, those of one partition together; returns the responses in the same order."""
    first = requests[0]
    client = tuple.__new__(_Client, (first.version, first.session))  # as the class does, at half the cost
    turn = _Turn(services, client)
    offered: list[_Taken] = []
    responses: Responses = []
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
            responses.append(_respond(services, client, acks, timeout_ms, places))
    except WireError as error:
        end = error
    return responses if end is None else [*responses, end]


async def _whole(handling: asyncio.Task[Reply]) -> Response:
    """Returns the final response of a request whose handling may end with a future response, which waits for replicas.

    The request is handled to its end even if its connection has gone by then.
    """
    reply = await asyncio.shield(handling)
    return await reply if isinstance(reply, asyncio.Future) else reply


def _respond(
    services: Services,
    client: _Client,
    acks: int,
    timeout_ms: int,
    offered: _Offered | _OfferedOne | _Later,
) -> Reply:
    """Returns the response, or its future where it waits for a sync or for replicas; None for acks=0.

    Call it once all batches are appended. Raises WireError, which closes the connection, where one has failed and
    acks=0 allows no response.
    """
    if not isinstance(offered, tuple):
        if isinstance(offered, asyncio.Future):
            return offered
        return _respond_several(services, client, acks, timeout_ms, offered)
    place, appends = offered
    if (appends.owes_sync or appends.commits_later) and appends.waits(acks):
        return _respond_several(services, client, acks, timeout_ms, [(appends.key.topic, place.topic_id, [appends])])
    outcome = next(appends.outcomes)
    if not isinstance(outcome, MillraceError):
        first_offset, _, log_append_time_ms, _ = outcome
        return [place.appended(first_offset, log_append_time_ms, appends.log_start_offset)] if acks else None
    failed = TopicProduced(appends.key.topic, place.topic_id, [_failed(services, client.version, appends, outcome)])
    return _encoded(services, client, acks, [failed])


def _respond_several(services: Services, client: _Client, acks: int, timeout_ms: int, offered: _Offered) -> Reply:
    appended: dict[TopicPartition, Appended] = {}
    produced: list[TopicProduced] = []
    for name, topic_id, partitions in each(offered):
        outcomes = [(appends, next(appends.outcomes)) for appends in each(partitions)]
        produced.append(
            TopicProduced(name, topic_id, [_produced(services, client.version, *one) for one in each(outcomes)])
        )
        for appends, outcome in each(outcomes):
            if appends.waits(acks) and not isinstance(outcome, MillraceError):
                appended[appends.key] = appends.to_wait_for(outcome, acks)
    if not appended:
        return _encoded(services, client, acks, produced)
    later = partial(_respond_replicated, services, client, produced)
    return when_all_have(services.replicas, appended, timeout_ms, later)


def _respond_replicated(
    services: Services,
    client: _Client,
    produced: list[TopicProduced],
    failed: Mapping[TopicPartition, ErrorCode],
) -> Parts:
    """Returns the response after the wait for replicas; `failed` are errors of partitions that have been appended."""
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


def _produced(services: Services, version: int, appends: Appends, outcome: AppendOutcome) -> PartitionProduced:
    if isinstance(outcome, MillraceError):
        return _failed(services, version, appends, outcome)
    return PartitionProduced(
        appends.key.partition, 0, outcome.first_offset, outcome.log_append_time_ms, appends.log_start_offset
    )


def _failed(services: Services, version: int, appends: Appends, error: MillraceError) -> PartitionProduced:
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
    "a batch that is not what its header says, as below (INVALID_RECORD); one that holds more than 512 MiB once "
    "decompressed, or more than 64 MiB and 8 max.message.bytes where it is compressed again or comes before v3 "
    "(MESSAGE_TOO_LARGE)",
    handle_all=handle_all,
    has_many=has_many_partitions,
    guards=(GUARD, TRANSACTION_GUARD),
)
