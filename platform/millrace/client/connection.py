"""One blocking TCP connection to one broker: requests go out, their answers come back in the same order.

    connect ──► TLS, where `security.protocol` asks for it; the broker's name is checked
            ──► ApiVersions v3 ──(UNSUPPORTED_VERSION: v0 again, KIP-511)──► the broker's ranges of versions
            ──► authentication by SASL, and again before the session's lifetime ends (KIP-368)
    request ──► the highest version that both sides know
    begin, begin, … finish, finish, … ──► the same, with one round trip for all

Versions are capped at the last that name topics: from Fetch 13 and Produce 13 on they go by id (KIP-516), which
older brokers do not have. The floor is Apache Kafka 0.11, the first with batches v2.

A connection that failed once is closed and never used again. One thread uses it at a time.

Where the broker gives the session a lifetime, the client authenticates again on the same connection after 85 to 95
percent of it, so that many clients don't come at once. `authentication` sends and waits for nothing itself: it says
what to ask, for connections of every kind.

    SaslHandshake v1 ──► SaslAuthenticate, as often as the mechanism has something to say ──► the session's lifetime
"""

from __future__ import annotations

import random
import select
import socket
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Never, Protocol, Self, TypeVar

from millrace.addresses import Address
from millrace.client.answers import check
from millrace.clock import Clock
from millrace.errors import (
    AnswerLostError,
    BrokerUnreachableError,
    ClientError,
    ErrorCode,
    IllegalSaslStateError,
    MalformedRequestError,
    SaslAuthenticationError,
    TlsError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from millrace.security.client_security import ClientSecurity
from millrace.version import __version__
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.api_messages import ApiMessages, Ask, Called, Message, MessageFields
from millrace.wire.encoder import INT16, INT32
from millrace.wire.frame import SIZE_BYTES, framed
from millrace.wire.header import encode_request_header, has_tagged_response_header
from millrace.wire.messages import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE

if TYPE_CHECKING:
    from millrace.security.sasl.mechanisms import ClientMechanism

RENEWAL_EARLIEST, RENEWAL_LATEST = 0.85, 0.95


def authentication(mechanism: ClientMechanism, peer: str) -> Generator[Ask[Any], Any, float | None]:
    """Yields the SASL requests to send, one by one; each decoded response is sent back into the generator.

    Returns the seconds after which to authenticate again; None for never. Raises UnsupportedSaslMechanismError,
    IllegalSaslStateError or SaslAuthenticationError, whose messages call the broker `peer`.
    """
    offered = yield SASL_HANDSHAKE.ask({"mechanism": mechanism.name})
    if offered.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise IllegalSaslStateError(
            f"{peer} takes no authentication now: its listener has no SASL, or it had one just now"
        )
    if offered.error_code != ErrorCode.NONE:
        others = ", ".join(offered.mechanisms) or "none"
        raise UnsupportedSaslMechanismError(
            f"{peer} does not offer sasl.mechanism={mechanism.name}; it offers {others}"
        )
    response = mechanism.initial_response()
    while True:
        answer = yield SASL_AUTHENTICATE.ask({"auth_bytes": response})
        if answer.error_code != ErrorCode.NONE:
            said = answer.error_message or "authentication failed"
            raise SaslAuthenticationError(f"{peer} does not accept the credentials of sasl.jaas.config: {said}")
        response = mechanism.respond(answer.auth_bytes)
        if not response:
            break
    if not mechanism.is_complete:
        raise SaslAuthenticationError(f"{peer} has not proven that it knows the user's password")
    return renewal_s(answer.session_lifetime.total_seconds())


def renewal_s(lifetime_s: float) -> float | None:
    """Returns after how many seconds to renew a SASL session of this lifetime; None for 0, a session without end."""
    share = random.uniform(RENEWAL_EARLIEST, RENEWAL_LATEST)  # noqa: S311 -- spreads clients, and guards nothing
    return lifetime_s * share if lifetime_s > 0 else None


CLIENT_VERSIONS = {
    ApiKey.PRODUCE: VersionRange(3, 12),
    ApiKey.FETCH: VersionRange(4, 12),
    ApiKey.LIST_OFFSETS: VersionRange(1, 7),
    ApiKey.METADATA: VersionRange(4, 12),
    ApiKey.LEADER_AND_ISR: VersionRange(5, 7),  # from here on by topic id; a controller sends this and the next two
    ApiKey.STOP_REPLICA: VersionRange(3, 4),
    ApiKey.UPDATE_METADATA: VersionRange(5, 8),
    ApiKey.OFFSET_COMMIT: VersionRange(2, 9),
    ApiKey.OFFSET_FETCH: VersionRange(2, 7),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: VersionRange(0, 4),
    ApiKey.FIND_COORDINATOR: VersionRange(0, 3),
    ApiKey.JOIN_GROUP: VersionRange(1, 9),
    ApiKey.HEARTBEAT: VersionRange(0, 4),
    ApiKey.LEAVE_GROUP: VersionRange(0, 5),
    ApiKey.SYNC_GROUP: VersionRange(0, 5),
    ApiKey.DESCRIBE_GROUPS: VersionRange(0, 5),
    ApiKey.LIST_GROUPS: VersionRange(0, 5),
    ApiKey.LIST_TRANSACTIONS: VersionRange(0, 1),
    ApiKey.DESCRIBE_TRANSACTIONS: VersionRange(0, 0),
    ApiKey.SASL_HANDSHAKE: VersionRange(1, 1),  # from here on what follows has headers
    ApiKey.API_VERSIONS: VersionRange(0, 3),
    ApiKey.CREATE_TOPICS: VersionRange(2, 7),
    ApiKey.DELETE_TOPICS: VersionRange(1, 5),
    ApiKey.DELETE_RECORDS: VersionRange(0, 2),
    ApiKey.INIT_PRODUCER_ID: VersionRange(0, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: VersionRange(0, 3),  # the next ones are for brokers
    ApiKey.ADD_OFFSETS_TO_TXN: VersionRange(0, 4),
    ApiKey.END_TXN: VersionRange(0, 4),  # the next ones change the producer's epoch (KIP-890)
    ApiKey.TXN_OFFSET_COMMIT: VersionRange(0, 4),  # the next one adds the group to the transaction (KIP-890)
    ApiKey.DESCRIBE_CONFIGS: VersionRange(1, 4),
    ApiKey.DESCRIBE_LOG_DIRS: VersionRange(1, 4),
    ApiKey.SASL_AUTHENTICATE: VersionRange(0, 2),
    ApiKey.CREATE_PARTITIONS: VersionRange(0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: VersionRange(0, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: VersionRange(0, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: VersionRange(0, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: VersionRange(0, 3),
    ApiKey.ELECT_LEADERS: VersionRange(0, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: VersionRange(0, 0),  # the next one only adds a restriction
    ApiKey.DESCRIBE_ACLS: VersionRange(1, 3),
    ApiKey.CREATE_ACLS: VersionRange(1, 3),
    ApiKey.DELETE_ACLS: VersionRange(1, 3),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: VersionRange(0, 0),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: VersionRange(0, 1),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: VersionRange(0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: VersionRange(0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
    ApiKey.DELETE_GROUPS: VersionRange(0, 2),
    ApiKey.CONSUMER_GROUP_DESCRIBE: VersionRange(0, 1),
}
UNTOLD_VERSIONS = {ApiKey.APPEND_MIRRORED: VersionRange(0, 0)}  # of APIs that no broker tells, though it may serve them
MAX_RESPONSE_BYTES = 1 << 30
TLS_ALERT = 0x1503  # how the answer of a TLS server to plain bytes begins
HELLO = API_VERSIONS.ask({"client_software_name": "millrace", "client_software_version": __version__})


class Unanswered(NamedTuple, Generic[Message]):
    """A request that was sent, and whose response is still to be read."""

    api: ApiMessages[object, Never, Message, Never]
    version: int
    correlation_id: int


class Answer(Protocol):
    """A response, or one element of a response, that has an error code."""

    @property
    def error_code(self) -> int:
        """The protocol's error code; 0 means success."""


Checked = TypeVar("Checked", bound=Answer)


def asking(ask: Ask[Checked], subject: str) -> Callable[[Connection], Checked]:
    """Returns a function that sends a request and returns the response, or raises its error code, about `subject`."""
    return asking_for(ask, lambda answer: answer, subject)


def asking_for(ask: Ask[Message], part: Callable[[Message], Checked], subject: str) -> Callable[[Connection], Checked]:
    """Returns a function that sends a request and returns the only element of the response, which `part` takes out.

    The function raises the element's error code as an error; raises ClientError where the response has no element.
    """

    def action(connection: Connection) -> Checked:
        try:
            answer = part(connection.request(*ask))
        except IndexError:
            raise ClientError(f"{subject}: the answer of {connection.address} says nothing of it") from None
        check(answer.error_code, subject, getattr(answer, "error_message", None))
        return answer

    return action


class Connection:
    """A blocking connection to one broker, connected and authenticated by the constructor.

    The constructor raises BrokerUnreachableError where nothing answers within `timeout_s`; it raises TlsError or
    SaslAuthenticationError where the client or the broker does not prove who it is.
    """

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        timeout_s: float,
        clock: Clock,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        security: ClientSecurity = ClientSecurity.PLAINTEXT,
    ) -> None:
        self.address = address
        self._security = security
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._now_s = clock.monotonic_s
        self._max_response_bytes = max_response_bytes
        self._correlation_id = 0
        self._unanswered = 0
        self.authenticate_at_s: float | None = None  # by the monotonic clock; None for never
        self._socket = self._connect()
        try:
            self._broker_versions = self._negotiate()
            if security.protocol.uses_sasl:
                self._authenticate()
        except AnswerLostError as error:
            raise BrokerUnreachableError(str(error)) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_usable(self) -> bool:
        """Whether a next request may be sent: the broker has neither closed the connection nor sent unasked data."""
        if self._socket.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def version(self, api_key: ApiKey) -> int:
        """Returns the highest version of an API that both sides know; raises UnsupportedVersionError for none."""
        if api_key in UNTOLD_VERSIONS:
            return UNTOLD_VERSIONS[api_key].maximum
        ours, theirs = CLIENT_VERSIONS[api_key], self._broker_versions.get(api_key)
        if theirs is None:
            raise UnsupportedVersionError(f"the broker at {self.address} does not serve {api_key.name}")
        version = min(ours.maximum, theirs.maximum)
        if version < max(ours.minimum, theirs.minimum):
            raise UnsupportedVersionError(
                f"{api_key.name}: the broker at {self.address} serves versions {theirs.minimum} to {theirs.maximum}, "
                f"this client {ours.minimum} to {ours.maximum}"
            )
        return version

    def request(self, api: Called[MessageFields, Message], fields: MessageFields, *, wait_s: float = 0.0) -> Message:
        """Sends a request and returns the decoded response. `wait_s` is how long the broker may hold the request.

        Raises AnswerLostError where the answer does not come: whether the request was carried out is not known. Raises
        InvalidRequestError for a value that its field does not hold, before anything is sent. Raises
        MalformedRequestError for an answer that can't be decoded; nothing more is read from that broker.
        """
        return self.finish(self.begin(api, fields), wait_s)

    def begin(
        self, api: Called[MessageFields, Message], fields: MessageFields, *, version: int | None = None
    ) -> Unanswered[Message]:
        """Sends a request whose response `finish` reads; several may be sent before the first response is read.

        Their responses must fit into the socket's buffers: a broker that can't write may not read either. `version` is
        one that the broker `serves`, the highest that both sides know unless given.
        """
        version = self.version(api.key) if version is None else version
        self._send(api, version, fields)
        self._unanswered += 1
        return Unanswered(api, version, self._correlation_id)

    def finish(self, sent: Unanswered[Message], wait_s: float = 0.0) -> Message:
        """Returns the decoded response to the request that was sent first of those not finished yet.

        Raises AnswerLostError where no response comes, MalformedRequestError where it can't be decoded.
        """
        body = self._receive(sent.api.key, sent.version, sent.correlation_id, wait_s)
        self._unanswered -= 1
        try:
            return sent.api.decode_response(sent.version, body)
        except MalformedRequestError:
            self.close()
            raise

    def serves(self, api_key: ApiKey, version: int) -> bool:
        """Returns whether the broker supports this version of an API."""
        theirs = self._broker_versions.get(api_key)
        return theirs is not None and theirs.minimum <= version <= theirs.maximum

    def exchange(self, api_key: ApiKey, version: int, message: bytes) -> memoryview:
        """Sends an encoded request of a supported version, returns the encoded response; raises AnswerLostError."""
        self._send_encoded(api_key, version, message)
        return self._receive(api_key, version, self._correlation_id)

    def send(self, api: Called[MessageFields, object], fields: MessageFields) -> None:
        """Sends a request that has no response: Produce with acks=0."""
        self._send(api, self.version(api.key), fields)

    def hand_over(self) -> socket.socket:
        """Returns the socket, made non-blocking, for the caller to use; this connection must not be used any more."""
        self._socket.setblocking(False)
        return self._socket

    def close(self) -> None:
        """Closes the socket; does nothing if it is closed."""
        self._socket.close()

    def _connect(self) -> socket.socket:
        try:
            connected = socket.create_connection(self.address, self._timeout_s)
        except OSError as error:
            raise BrokerUnreachableError(f"no broker answers at {self.address}: {error.strerror or error}") from error
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            return self._security.secure(connected, self.address.host)
        except OSError as error:
            connected.close()
            raise BrokerUnreachableError(
                f"no broker speaks TLS at {self.address}: {error.strerror or error}"
            ) from error

    def _negotiate(self) -> dict[int, VersionRange]:
        for version in (CLIENT_VERSIONS[ApiKey.API_VERSIONS].maximum, 0):
            self._send(API_VERSIONS, version, HELLO.fields)
            body = self._receive(ApiKey.API_VERSIONS, version, self._correlation_id)
            code = INT16.unpack_from(body)[0] if len(body) >= INT16.size else ErrorCode.UNKNOWN_SERVER_ERROR
            if code != ErrorCode.UNSUPPORTED_VERSION:
                answer = API_VERSIONS.decode_response(version, body)
                return {one.api_key: VersionRange(one.min_version, one.max_version) for one in answer.api_keys}
        raise UnsupportedVersionError(f"the broker at {self.address} serves no version of API_VERSIONS known here")

    def _authenticate(self) -> None:
        self.authenticate_at_s = None
        steps = authentication(self._security.new_mechanism(), f"the broker at {self.address}")
        ask = next(steps)
        while True:
            try:
                ask = steps.send(self.request(*ask))
            except StopIteration as done:
                if done.value is not None:
                    self.authenticate_at_s = self._now_s() + done.value
                return
            except BaseException:
                self.close()
                raise

    def _send(self, api: Called[MessageFields, object], version: int, fields: MessageFields) -> None:
        self._send_encoded(api.key, version, api.encode_request(version, fields))

    def _send_encoded(self, api_key: ApiKey, version: int, message: bytes) -> None:
        if self.authenticate_at_s is not None and not self._unanswered and self._now_s() >= self.authenticate_at_s:
            self._authenticate()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(api_key, version, self._correlation_id, self._client_id)
        frame = framed(header, message)
        try:
            self._socket.settimeout(self._timeout_s)  # which fails where an earlier answer has closed the socket
            self._socket.sendall(frame)
        except OSError as error:
            self.close()
            raise self._security.explained(error, str(self.address)) or AnswerLostError(
                f"the broker at {self.address} closed the connection during a request: {error}"
            ) from error

    def _receive(self, api_key: ApiKey, version: int, correlation_id: int, wait_s: float = 0.0) -> memoryview:
        """Returns the body of the response with this correlation id, without header; an error closes the connection."""
        try:
            frame = self._receive_frame(correlation_id, self._now_s() + self._timeout_s + wait_s)
        except OSError as error:
            self.close()
            raise self._security.explained(error, str(self.address)) or AnswerLostError(
                f"the broker at {self.address} did not answer: {error}"
            ) from error
        except BaseException:
            self.close()
            raise
        # Brokers of this protocol send no tagged fields in the header: one zero byte.
        return frame[INT32.size + has_tagged_response_header(api_key, version) :]

    def _receive_frame(self, asked: int, deadline: float) -> memoryview:
        (size,) = INT32.unpack(self._receive_exactly(SIZE_BYTES, deadline))
        if size >> 16 == TLS_ALERT:
            raise TlsError(f"the broker at {self.address} speaks TLS there: security.protocol is to be SSL or SASL_SSL")
        if not INT32.size <= size <= self._max_response_bytes:
            raise ClientError(
                f"the broker at {self.address} answers {size} bytes; the limit is {self._max_response_bytes}"
            )
        frame = self._receive_exactly(size, deadline)
        (answered,) = INT32.unpack_from(frame)
        if answered != asked:
            raise ClientError(f"the broker at {self.address} answers request {answered}, not {asked}")
        return frame

    def _receive_exactly(self, count: int, deadline: float) -> memoryview:
        view = memoryview(bytearray(count))
        filled = 0
        while filled < count:
            self._socket.settimeout(max(deadline - self._now_s(), 0.001))
            received = self._socket.recv_into(view[filled:])
            if not received:
                raise ConnectionError("the connection was closed")
            filled += received
        return view.toreadonly()
