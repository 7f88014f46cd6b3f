"""One connection from this broker to another one: requests go out, and the answers come back in the same order.

    link = await BrokerLink.connect(address, client_id="…", timeout_s=30, max_response_bytes=…)
    answer = await link.request(ALTER_PARTITION, 3, fields)                   typed messages
    body = await link.exchange(ApiKey.FETCH, 17, message, wait_s=0.5)         bytes on both sides
    version = await link.newest_version(ApiKey.ALTER_PARTITION, known)        for brokers of any release

Several requests may be in flight; their callers each wait for their own answer. A link that failed once is closed and
never used again: an answer that comes too late or belongs to another request leaves the order of all others in doubt.
The caller connects again.

Where `security` asks for it, bytes go over TLS, and this broker authenticates by SASL before its first request, and
again before its session ends (KIP-368): other requests wait meanwhile.

An answer above `max_response_bytes` closes the link, and memory is taken only as its bytes arrive.

`RequestBatcher` asks other brokers in batches: each has one request in flight, and all that is asked meanwhile goes
with the next.

    outcome = await batcher.ask(broker_id, item)
                     item ──► waits for its broker ──► exchange(link, items) ──► an outcome for each item

Nothing is sent again: where a broker can't be reached, or its answer is lost, all items of the batch fail. Those who
asked decide by the newest metadata whether they ask again, and which broker.

Runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar, cast

from millrace.addresses import Address
from millrace.client.connection import authentication
from millrace.errors import (
    AnswerLostError,
    BrokerUnreachableError,
    ClientError,
    ErrorCode,
    MalformedRequestError,
    MillraceError,
    UnsupportedVersionError,
    WireError,
)
from millrace.security.client_security import ClientSecurity
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.api_messages import Called, Message, MessageFields
from millrace.wire.frame import SCRATCH_BYTES, FrameBuffer, framed
from millrace.wire.header import CORRELATION_ID, encode_request_header, has_tagged_response_header
from millrace.wire.messages import API_VERSIONS

if TYPE_CHECKING:
    from millrace.wire.messages.api_versions import ApiVersionsRequestFields

VERSION_OF_API_VERSIONS = 0  # any broker takes it
SASL_VERSIONS = {ApiKey.SASL_HANDSHAKE: 1, ApiKey.SASL_AUTHENTICATE: 1}  # the first that tells a session's lifetime
NO_FIELDS: ApiVersionsRequestFields = {}

Answer = asyncio.Future[memoryview]

# Logins have a thread of their own: a token endpoint that does not answer then blocks none that wait for disks.
_logins = ThreadPoolExecutor(1, "login")
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
REQUEST_TIMEOUT_S = 30.0  # Kafka's request.timeout.ms
MAX_RESPONSE_BYTES = 64 << 20


class Connect(Protocol):
    """Makes links to other brokers: `BrokerLink.connect`, with the security of the listener for brokers."""

    async def __call__(
        self, address: Address, *, client_id: str, timeout_s: float, max_response_bytes: int
    ) -> BrokerLink:
        """Returns a new link; raises BrokerUnreachableError, TlsError or SaslAuthenticationError."""
        ...


class BrokerLink(asyncio.BufferedProtocol):
    """A connection to another broker, over which requests are sent; `connect` makes it."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        timeout_s: float,
        max_response_bytes: int,
        security: ClientSecurity = ClientSecurity.PLAINTEXT,
    ) -> None:
        self.address = address
        self._security = security
        self._authentication = asyncio.Lock()
        self._authenticate_at_s: float | None = None
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._frames = FrameBuffer(bytearray(SCRATCH_BYTES), max_response_bytes, is_shared=False)
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._waiting: deque[tuple[int, Answer]] = deque()
        self._served: Mapping[int, VersionRange] | None = None

    @classmethod
    async def connect(
        cls,
        address: Address,
        *,
        client_id: str,
        timeout_s: float,
        max_response_bytes: int,
        security: ClientSecurity = ClientSecurity.PLAINTEXT,
    ) -> Self:
        """Returns a new link; raises BrokerUnreachableError where nothing answers within `timeout_s`.

        Raises TlsError or SaslAuthenticationError where one side does not prove its identity.

        Args:
            address: where the broker listens.
            client_id: names this broker in each request.
            timeout_s: how long an answer may take, and the connection itself.
            max_response_bytes: the largest answer that is taken.
            security: the protocol, and this broker's credentials.
        """
        link = cls(
            address,
            client_id=client_id,
            timeout_s=timeout_s,
            max_response_bytes=max_response_bytes,
            security=security,
        )
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().create_connection(lambda: link, *address, ssl=security.context)
                if security.protocol.uses_sasl:
                    await link._authenticate()
        except (OSError, OverflowError, UnicodeError) as error:  # the last two for an impossible port or host name
            link.close()
            refused = security.explained(error, str(address)) if isinstance(error, OSError) else None
            unreachable = BrokerUnreachableError(f"no broker answers at {address}: {error or 'not in time'}")
            raise refused or unreachable from error
        except MillraceError:
            link.close()
            raise
        return link

    @property
    def is_closed(self) -> bool:
        """Whether the link failed, was closed, or is not connected yet."""
        return self._transport is None

    @property
    def in_flight(self) -> int:
        """The number of requests whose answers have not come."""
        return len(self._waiting)

    async def request(
        self, api: Called[MessageFields, Message], version: int, fields: MessageFields, *, wait_s: float = 0.0
    ) -> Message:
        """Sends a request and returns its decoded answer; closes the link where that fails.

        Raises BrokerUnreachableError, AnswerLostError or ClientError as `exchange`, MalformedRequestError for an answer
        that can't be decoded, and InvalidRequestError, with nothing sent and the link open, for a value that its field
        does not hold.
        """
        body = await self.exchange(api.key, version, api.encode_request(version, fields), wait_s=wait_s)
        try:
            return api.decode_response(version, body)
        except MalformedRequestError as error:
            self._fail(error)
            raise

    async def exchange(
        self, api_key: ApiKey, version: int, message: bytes | bytearray, *, wait_s: float = 0.0
    ) -> memoryview:
        """Sends an encoded request and returns its encoded answer, without the header.

        `wait_s` is how long the request lets the broker wait before it answers, beyond `timeout_s`. Raises
        BrokerUnreachableError where the link is closed; raises AnswerLostError where the answer does not come, so that
        it is not known whether the request was carried out; raises ClientError for an answer that is too large or to
        another request.
        """
        if self._authenticate_at_s is not None:
            await self._authenticate_if_due()
        return await self._exchange(api_key, version, message, wait_s)

    async def _exchange(
        self, api_key: ApiKey, version: int, message: bytes | bytearray, wait_s: float = 0.0
    ) -> memoryview:
        answer = self._send(api_key, version, message)
        try:
            async with asyncio.timeout(self._timeout_s + wait_s):
                frame = await answer
        except TimeoutError:
            late = AnswerLostError(f"the broker at {self.address} has not answered {api_key.name} in time")
            self._fail(late)
            raise late from None
        # Brokers send no tagged fields in the header: one zero byte.
        return frame[CORRELATION_ID.size + has_tagged_response_header(api_key, version) :]

    def give_back(self, body: memoryview) -> None:
        """Lets the memory of an answer be overwritten by later ones; the caller may not use `body` any more."""
        self._frames.give_back(body)

    async def served_versions(self) -> Mapping[int, VersionRange]:
        """Returns the versions that the broker serves of each API, by API key.

        Raises ClientError where the broker refuses, or BrokerUnreachableError or AnswerLostError without an answer.
        """
        answer = await self.request(API_VERSIONS, VERSION_OF_API_VERSIONS, NO_FIELDS)
        if answer.error_code != ErrorCode.NONE:
            raise ClientError(f"the broker at {self.address} answers ApiVersions with error {int(answer.error_code)}")
        return {one.api_key: VersionRange(one.min_version, one.max_version) for one in answer.api_keys}

    async def newest_version(self, api_key: ApiKey, known: VersionRange) -> int:
        """Returns the newest version of an API that both sides know; the broker is asked once for each link.

        Raises UnsupportedVersionError where there is none, or an error of `served_versions` where that fails.
        """
        if self._served is None:
            self._served = await self.served_versions()
        served = self._served.get(api_key)
        version = -1 if served is None else min(served.maximum, known.maximum)
        if served is None or version < max(served.minimum, known.minimum):
            theirs = "no version" if served is None else f"versions {served.minimum} to {served.maximum}"
            raise UnsupportedVersionError(f"the broker at {self.address} serves {theirs} of {api_key.name}")
        return version

    def close(self) -> None:
        """Closes the connection; callers that wait get BrokerUnreachableError or AnswerLostError."""
        self._fail(AnswerLostError(f"the connection to the broker at {self.address} is closed"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the connection's transport, as asyncio has made it."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails all requests that wait for an answer with AnswerLostError, or the TLS error."""
        refused = self._security.explained(exc, str(self.address)) if isinstance(exc, OSError) else None
        lost = AnswerLostError(f"the broker at {self.address} closed the connection: {exc or 'end of stream'}")
        self._fail(refused or lost)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Returns the memory into which asyncio reads the next bytes."""
        if self._frames.growth_bytes:
            self._frames.grow()
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Hands each answer that is complete to its caller."""
        try:
            for frame in self._frames.received(nbytes):
                self._take(frame)
        except (WireError, ClientError) as error:
            self._fail(ClientError(f"the broker at {self.address} sends no valid answer: {error}"))

    async def _authenticate_if_due(self) -> None:
        async with self._authentication:
            if self._authenticate_at_s is not None and asyncio.get_running_loop().time() >= self._authenticate_at_s:
                try:
                    await self._authenticate()
                except MillraceError as error:
                    self._fail(error)
                    raise

    async def _authenticate(self) -> None:
        new_mechanism = self._security.new_mechanism
        mechanism = await asyncio.get_running_loop().run_in_executor(_logins, new_mechanism)  # it may ask for a token
        steps = authentication(mechanism, f"the broker at {self.address}")
        ask = next(steps)
        while True:
            version = SASL_VERSIONS[ask.api.key]
            body = await self._exchange(ask.api.key, version, ask.api.encode_request(version, ask.fields))
            try:
                ask = steps.send(ask.api.decode_response(version, body))
            except StopIteration as done:
                again_s = done.value
                break
        self._authenticate_at_s = None if again_s is None else asyncio.get_running_loop().time() + again_s

    def _send(self, api_key: ApiKey, version: int, message: bytes | bytearray) -> Answer:
        if self._transport is None:
            raise BrokerUnreachableError(f"the connection to the broker at {self.address} is closed")
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(api_key, version, self._correlation_id, self._client_id)
        answer: Answer = asyncio.get_running_loop().create_future()
        self._waiting.append((self._correlation_id, answer))
        self._transport.write(framed(header, message))
        return answer

    def _take(self, frame: memoryview) -> None:
        """Gives an answer to the oldest request, unless its caller is gone; raises ClientError if it isn't for that."""
        if len(frame) < CORRELATION_ID.size:
            raise ClientError(f"an answer of {len(frame)} bytes")
        (answered,) = CORRELATION_ID.unpack_from(frame)
        if not self._waiting or answered != self._waiting[0][0]:
            raise ClientError(f"an answer to request {answered}, which is not the oldest one in flight")
        _, answer = self._waiting.popleft()
        if not answer.done():
            answer.set_result(self._frames.keep(frame))

    def _fail(self, error: MillraceError) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        while self._waiting:
            _, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(error)


class RequestBatcher(Generic[Item, Outcome]):
    """Sends items to brokers, over one connection to each; what waits for a broker goes into its next request.

    Args:
        exchange: sends items to one broker, and returns the outcome of each in their order.
        address_of: returns where a broker is now; None where that is not known.
        client_id: names this broker in each request.
        connect: makes the connections.
    """

    def __init__(
        self,
        exchange: Callable[[BrokerLink, Sequence[Item]], Awaitable[Sequence[Outcome]]],
        address_of: Callable[[int], Address | None],
        client_id: str,
        connect: Connect = BrokerLink.connect,
    ) -> None:
        self._connect = connect
        self._exchange = exchange
        self._address_of = address_of
        self._client_id = client_id
        self._waiting: dict[int, list[tuple[Item, asyncio.Future[Outcome]]]] = {}
        self._links: dict[int, BrokerLink] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}

    def ask(self, broker_id: int, item: Item) -> asyncio.Future[Outcome]:
        """Returns a future of the item's outcome; it raises BrokerUnreachableError or AnswerLostError."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(broker_id, []).append((item, outcome))
        if broker_id not in self._senders:
            self._senders[broker_id] = asyncio.create_task(self._send_all(broker_id))
        return outcome

    async def close(self) -> None:
        """Stops sending, as the broker stops; items that are on their way get no outcome any more."""
        senders = tuple(self._senders.values())
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        for link in self._links.values():
            link.close()

    async def _send_all(self, broker_id: int) -> None:
        try:
            while batch := self._waiting.pop(broker_id, None):
                await self._send(broker_id, [one for one in batch if not one[1].done()])
        finally:
            del self._senders[broker_id]

    async def _send(self, broker_id: int, batch: Sequence[tuple[Item, asyncio.Future[Outcome]]]) -> None:
        try:
            outcomes = await self._exchange(await self._link(broker_id), [item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 -- those who asked judge it
            for _, outcome in batch:
                if not outcome.done():
                    outcome.set_exception(error)
            return
        for (_, outcome), found in zip(batch, outcomes, strict=True):
            if not outcome.done():
                outcome.set_result(found)

    async def _link(self, broker_id: int) -> BrokerLink:
        """Returns the open link to a broker; makes a new one if that is closed or the broker's address has changed."""
        address = self._address_of(broker_id)
        link = self._links.get(broker_id)
        if link is not None and (link.is_closed or link.address != address):
            link.close()
            del self._links[broker_id]
            link = None
        if address is None:
            raise BrokerUnreachableError(f"broker {broker_id} is not known to be alive")
        if link is None:
            link = self._links[broker_id] = await self._connect(
                address,
                client_id=self._client_id,
                timeout_s=REQUEST_TIMEOUT_S,
                max_response_bytes=MAX_RESPONSE_BYTES,
            )
        return link


def in_rounds(items: Iterable[Item], key_of: Callable[[Item], Hashable]) -> list[list[Item]]:
    """Splits items into lists in which each key occurs once, for requests whose answers name items by that key."""
    rounds: list[dict[Hashable, Item]] = []
    depths: dict[Hashable, int] = {}
    for item in items:
        key = key_of(item)
        depth = depths[key] = depths.get(key, -1) + 1
        if depth == len(rounds):
            rounds.append({})
        rounds[depth][key] = item
    return [list(one.values()) for one in rounds]
