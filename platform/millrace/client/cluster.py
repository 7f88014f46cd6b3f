"""A client's view of one cluster: its metadata, a connection per broker, and routing to leaders.

    action on a partition ──► its leader, as known ──► connection ──► action
              ▲                                                        │ retriable error
              └───── forget the leader, wait, ask for metadata ◄───────┘

A retry waits 50 ms, then twice as long each time up to a second. After ten attempts, or when the time is over, the last
error is raised. Where an election is waited for, the time alone counts: a dead broker remains the leader until its
session with ZooKeeper has ended, which takes longer than ten attempts do.

A broker that has just started names no brokers and no topics until it has heard from the controller: another broker is
asked instead, or the same one again where there is no other. Where one broker does not know a topic, the others are
asked.

A cluster, and all that was made from it, belongs to one thread: each thread (or task) opens its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Self, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_exponential

from millrace.addresses import Address, parse_addresses
from millrace.client.answers import check, is_retriable
from millrace.client.connection import Connection, asking
from millrace.client.metadata import ClusterMetadata, metadata_of, newest_of
from millrace.clock import Clock, SystemClock
from millrace.errors import (
    AnswerLostError,
    BrokerError,
    BrokerUnreachableError,
    ErrorCode,
    MillraceError,
    NotLeaderError,
    UnknownTopicError,
)
from millrace.security.client_security import ClientSecurity
from millrace.uuids import NO_TOPIC_ID
from millrace.wire.messages import FIND_COORDINATOR, METADATA

if TYPE_CHECKING:
    from millrace.wire.api_messages import Ask
    from millrace.wire.messages.metadata import MetadataResponse

RETRY_ATTEMPTS = 10
RETRY_WAIT_MIN_S = 0.05
RETRY_WAIT_MAX_S = 1.0
ELECTION_CODES = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
    }
)


class LeaderUnreachableError(BrokerUnreachableError):
    """A leader, coordinator or controller can't be reached; a retry asks another broker who has taken over."""


class JustStartedError(BrokerError):
    """All reachable brokers have just started, and don't have the cluster's metadata yet."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, "the brokers have just started and know no cluster yet")


def retrying(
    timeout_s: float, again: Callable[[BaseException], bool], before_retry: Callable[[object], None] | None = None
) -> Retrying:
    """Returns a callable that runs a function, and repeats it for `timeout_s` after errors that `again` accepts."""
    is_late = stop_after_delay(timeout_s)
    return Retrying(
        retry=retry_if_exception(again),
        stop=lambda state: is_late(state) or _was_tried_enough(state),
        wait=wait_exponential(multiplier=RETRY_WAIT_MIN_S, max=RETRY_WAIT_MAX_S),
        before_sleep=before_retry,
        reraise=True,
    )


def is_passing(error: BaseException) -> bool:
    """Returns whether to repeat the request: the error is retriable, and it is not that no broker can be reached."""
    if isinstance(error, BrokerUnreachableError):
        return isinstance(error, LeaderUnreachableError)
    return is_retriable(error)


def _was_tried_enough(state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome is not None else None
    return state.attempt_number >= RETRY_ATTEMPTS and not _ends_by_an_election(error)


def _ends_by_an_election(error: BaseException | None) -> bool:
    """Returns whether the error is likely to end once a new leader, coordinator or controller is elected."""
    if isinstance(error, BrokerError) and error.broker_code in ELECTION_CODES:
        return True
    return isinstance(error, NotLeaderError | JustStartedError | LeaderUnreachableError | AnswerLostError)


GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
MAX_KNOWN = 100_000  # leaders, and likewise coordinators, that are remembered; of more, the oldest are asked for again

Key = TypeVar("Key")
Result = TypeVar("Result")


class _Known(dict[Key, Address]):
    """A cache of broker addresses by partition or coordinator key; above `MAX_KNOWN` the oldest entry is dropped."""

    def __setitem__(self, key: Key, address: Address) -> None:
        super().__setitem__(key, address)
        if len(self) > MAX_KNOWN:
            del self[next(iter(self))]


class Cluster:
    """Sends requests to the brokers of a cluster, over connections that it opens as needed and closes as a context.

    Args:
        bootstrap: `HOST:PORT,…` of some brokers; it is enough if one of them answers.
        client_id: what the brokers' logs and quotas call this client.
        timeout_s: for a connection, and for an answer; once it has passed, no new attempt is made at a request.
        clock: the machine's unless given.
        security: of each connection; none unless given.
        waiting: makes a context in which the cluster waits for brokers, for a program that tells people so.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "millrace",
        timeout_s: float = 30.0,
        clock: Clock | None = None,
        security: ClientSecurity = ClientSecurity.PLAINTEXT,
        waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.timeout_s = timeout_s
        self._waiting = waiting
        self.clock = clock or SystemClock()
        self._client_id = client_id
        self._security = security
        self._bootstrap = parse_addresses(bootstrap)
        self._brokers: tuple[Address, ...] = ()
        self._leaders = _Known[tuple[str, int]]()
        self._coordinators = _Known[tuple[int, str]]()
        self._connections: dict[Address, Connection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sibling(self, *, timeout_s: float) -> Cluster:
        """Returns a view of the same cluster for another thread, with connections of its own."""
        return Cluster(
            ",".join(str(one) for one in self._bootstrap),
            client_id=self._client_id,
            timeout_s=timeout_s,
            clock=self.clock,
            security=self._security,
        )

    @property
    def timeout_ms(self) -> int:
        """The client's `timeout_s` in milliseconds, for requests that say how long the broker may take."""
        return int(self.timeout_s * 1000)

    def close(self) -> None:
        """Closes every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def metadata(self, topics: Sequence[str] | None = None, *, create_missing: bool = False) -> ClusterMetadata:
        """Returns the metadata of these topics, or of all, from one broker.

        With `create_missing` the broker creates missing topics if `auto.create.topics.enable` lets it. Raises
        BrokerUnreachableError at once if no known broker answers, JustStartedError after `timeout_s`.
        """
        return self._repeat(lambda: self._ask_metadata(topics, create_missing), is_passing)

    def newest_metadata(self, topics: Sequence[str]) -> ClusterMetadata:
        """Asks all live brokers about these topics; returns each partition by the answer with its highest leader epoch.

        `on_leader` uses these leaders from then on. Raises BrokerUnreachableError where one broker does not answer.
        """
        ask = _ask_for(topics, create_missing=False)
        metadata = newest_of(self.on_each_broker(lambda connection: metadata_of(connection.request(*ask))))
        for topic in metadata.topics.values():
            for index, partition in topic.partitions.items():
                if partition.leader in metadata.brokers:
                    self._leaders[topic.name, index] = metadata.brokers[partition.leader].address
        return metadata

    def partition_count(self, topic: str, *, create_missing: bool = False) -> int:
        """Returns how many partitions a topic has; repeats the request, up to `timeout_s`, after errors that may pass.

        Raises UnknownTopicError, BrokerError or BrokerUnreachableError.
        """

        def attempt() -> int:
            return len(self._metadata_of(topic, create_missing).topic(topic).partitions)

        return self._repeat(attempt, is_passing)

    def leader_connection(self, topic: str, partition: int) -> Connection:
        """Returns a connection to a leader; raises UnknownTopicError, BrokerError or BrokerUnreachableError."""
        return self.connection_to(self._leader(topic, partition, create_missing=False))

    def forget_leader(self, topic: str, partition: int) -> None:
        """Has the next action on a partition ask who leads it; for a request to the leader that has failed."""
        self._leaders.pop((topic, partition), None)

    def on_leader(
        self,
        topic: str,
        partition: int,
        action: Callable[[Connection], Result],
        *,
        create_missing: bool = False,
        repeatable: bool = True,
    ) -> Result:
        """Returns what an action returns on the connection of a partition's leader; repeats it after retriable errors.

        With `create_missing` a broker may create the topic. An action that is not `repeatable` is not repeated after
        AnswerLostError, since the broker may have carried it out.
        """

        def attempt() -> Result:
            return self._on(self._leader(topic, partition, create_missing=create_missing), action)

        def forget(_: object) -> None:
            self.forget_leader(topic, partition)

        def again(error: BaseException) -> bool:
            return is_retriable(error) and (repeatable or not isinstance(error, AnswerLostError))

        return self._repeat(attempt, again, forget)

    def broker_connection(self, broker_id: str) -> Connection:
        """Returns a connection to a live broker; raises BrokerError where none has this id."""
        for one, broker in self.metadata([]).brokers.items():
            if str(one) == broker_id:
                return self.connection_to(broker.address)
        raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive")

    def on_controller(self, action: Callable[[Connection], Result]) -> Result:
        """Returns what `action` returns for a connection to the controller; tries again where the controller moves."""

        def attempt() -> Result:
            metadata = self._ask_metadata([])
            controller = metadata.brokers.get(metadata.controller_id)
            if controller is None:  # a cluster that hides its controller takes such requests anywhere
                return action(self.on_any(lambda connection: connection))
            return self._on(controller.address, action)

        def again(error: BaseException) -> bool:
            return is_passing(error) and not isinstance(error, UnknownTopicError)

        return self._repeat(attempt, again)

    def on_coordinator(
        self, key: str, action: Callable[[Connection], Result], *, key_type: int = GROUP_KEY_TYPE
    ) -> Result:
        """Returns what `action` returns for a connection to the coordinator of `key`; tries again if it has moved.

        `key` is a group id or, as `key_type` says, a transactional id.
        """

        def attempt() -> Result:
            return self.once_on_coordinator(key, action, key_type=key_type)

        return self._repeat(attempt, is_passing)

    def once_on_coordinator(
        self, key: str, action: Callable[[Connection], Result], *, key_type: int = GROUP_KEY_TYPE
    ) -> Result:
        """Does as `on_coordinator`, in a single attempt, after which another may ask where the coordinator is now."""
        address = self._coordinators.get((key_type, key)) or self._find_coordinator(key, key_type)
        try:
            result = self._on(address, action)
        except MillraceError as error:
            if not isinstance(error, BrokerError) or error.broker_code in ELECTION_CODES:
                self._coordinators.pop((key_type, key), None)
            raise
        self._coordinators[key_type, key] = address
        return result

    def on_each_broker(self, action: Callable[[Connection], Result]) -> list[Result]:
        """Returns, for each live broker, what `action` returns for a connection to that broker."""

        def attempt() -> list[Result]:
            return [action(self.connection_to(broker.address)) for broker in self._ask_metadata([]).brokers.values()]

        return self._repeat(attempt, is_passing)

    def until_it_passes(self, attempt: Callable[[], Result]) -> Result:
        """Returns what `attempt` returns; calls it again after retriable errors, until `timeout_s` has passed."""
        return self._repeat(attempt, is_retriable)

    def _repeat(
        self,
        attempt: Callable[[], Result],
        again: Callable[[BaseException], bool],
        before_retry: Callable[[object], None] | None = None,
    ) -> Result:
        with self._waiting():
            return retrying(self.timeout_s, again, before_retry)(attempt)

    def _on(self, leader: Address, action: Callable[[Connection], Result]) -> Result:
        """Returns what `action` returns for a connection to this leader, coordinator or controller.

        Raises LeaderUnreachableError where it can't be reached.
        """
        try:
            return action(self.connection_to(leader))
        except AnswerLostError:
            raise
        except BrokerUnreachableError as error:
            raise LeaderUnreachableError(str(error)) from error

    def _find_coordinator(self, key: str, key_type: int) -> Address:
        kind = "group" if key_type == GROUP_KEY_TYPE else "transactional id"
        found = self.on_any(asking(FIND_COORDINATOR.ask({"key": key, "key_type": key_type}), f"{kind} {key}"))
        return Address(found.host, found.port)

    def _leader(self, topic: str, partition: int, *, create_missing: bool) -> Address:
        address = self._leaders.get((topic, partition))
        if address is None:
            address = self._metadata_of(topic, create_missing).leader(topic, partition).address
            self._leaders[topic, partition] = address
        return address

    def _metadata_of(self, topic: str, create_missing: bool) -> ClusterMetadata:
        metadata = self._ask_metadata([topic], create_missing)
        if create_missing:  # some brokers answer "unknown", which can be retried, until they have created the topic
            check(metadata.topics[topic].error_code, f"topic {topic}")
        return metadata

    def _ask_metadata(self, topics: Sequence[str] | None, create_missing: bool = False) -> ClusterMetadata:
        ask = _ask_for(topics, create_missing)
        first: ClusterMetadata | None = None
        for metadata in self._answers(lambda connection: metadata_of(connection.request(*ask))):
            if not metadata.brokers:
                continue
            self._brokers = tuple(broker.address for broker in metadata.brokers.values())
            if create_missing or not metadata.lacks(topics or ()):
                return metadata
            first = first or metadata
        if first is None:
            raise JustStartedError
        return first

    def on_any(self, action: Callable[[Connection], Result]) -> Result:
        """Returns what `action` returns for the first broker that can be reached; open connections are tried first."""
        with self._waiting():
            return next(self._answers(action))

    def _answers(self, action: Callable[[Connection], Result]) -> Iterator[Result]:
        """Yields what `action` returns for each reachable broker; raises BrokerUnreachableError if there is none."""
        failures: dict[Address, str] = {}
        asked: set[Address] = set()
        while left := [one for one in (*self._connections, *self._bootstrap, *self._brokers) if one not in asked]:
            asked.add(left[0])
            try:
                answer = action(self.connection_to(left[0]))
            except BrokerUnreachableError as error:
                failures[left[0]] = str(error)
            else:
                yield answer
        if len(failures) == len(asked):
            raise BrokerUnreachableError("; ".join(failures.values()))

    def connection_to(self, address: Address) -> Connection:
        """Returns the open connection to a broker, or opens one; raises BrokerUnreachableError."""
        connection = self._connections.pop(address, None)
        if connection is None or not connection.is_usable:
            if connection is not None:
                connection.close()
            with self._waiting():
                connection = Connection(
                    address,
                    client_id=self._client_id,
                    timeout_s=self.timeout_s,
                    clock=self.clock,
                    security=self._security,
                )
        self._connections[address] = connection
        return connection


def _ask_for(topics: Sequence[str] | None, create_missing: bool) -> Ask[MetadataResponse]:
    return METADATA.ask(
        {
            "topics": None if topics is None else [{"name": name, "topic_id": NO_TOPIC_ID} for name in topics],
            "allow_auto_topic_creation": create_missing,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
    )
