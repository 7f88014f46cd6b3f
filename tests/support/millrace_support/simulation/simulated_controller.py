"""A simulated broker's controller: the real one, whose events are done on the event loop instead of its own thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from millrace.addresses import Address
from millrace.clock import Clock
from millrace.errors import MillraceError
from millrace.wire.messages import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from millrace_broker.controller.active_controller import ControllerConfig
from millrace_broker.controller.broker_channels import OnEnded, OnResponse
from millrace_broker.controller.cluster_state import LiveBroker
from millrace_broker.controller.control_requests import (
    BrokerResponse,
    ControlRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
    role_outcomes,
    stop_outcomes,
)
from millrace_broker.controller.controller import Controller, Event
from millrace_broker.controller.failed_deletions import PAUSE_S
from millrace_broker.controller.process_watch import CONFIRM_PAUSE_S
from millrace_broker.replication.broker_link import BrokerLink
from millrace_support.model_zookeeper import ModelSession

LONGEST_TURN_S = 0.05
RETRY_PAUSE_S = 0.3
TIMEOUT_S = 5.0
MAX_RESPONSE_BYTES = 1 << 20

AddressOf = Callable[[int], Address]


class _Connected(asyncio.Protocol):
    """A connection over which nothing is said."""

    def __init__(self) -> None:
        self.broken = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        self.broken.set_result(exc)


class SimulatedWatch:
    """Tells of the end of a process (`ProcessWatch`)."""

    def __init__(self, address: Address, on_ended: Callable[[], None]) -> None:
        self._address = address
        self._on_ended = on_ended
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Ends the watch."""
        self._task.cancel()

    async def _run(self) -> None:
        was_connected = False
        while True:
            with suppress(OSError):
                transport, connected = await self._connected()
                was_connected = True
                try:
                    await connected.broken
                finally:
                    transport.abort()
            if was_connected and await self._is_refused():
                await asyncio.sleep(CONFIRM_PAUSE_S)
                if await self._is_refused():
                    self._on_ended()
                    return
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _connected(self) -> tuple[asyncio.Transport, _Connected]:
        return await asyncio.get_running_loop().create_connection(_Connected, *self._address)

    async def _is_refused(self) -> bool:
        try:
            transport, _ = await self._connected()
        except OSError as error:
            return isinstance(error, ConnectionRefusedError)
        transport.abort()
        return False


class SimulatedChannels:
    """Sends control requests to each broker in order, again until it answers or is gone (`BrokerChannels`)."""

    def __init__(self, address_of: AddressOf, on_response: OnResponse, on_ended: OnEnded) -> None:
        self._address_of = address_of
        self._on_response = on_response
        self._on_ended = on_ended
        self._watches: dict[int, SimulatedWatch] = {}
        self._waiting: dict[int, asyncio.Queue[ControlRequest]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def open(self, broker: LiveBroker) -> None:
        """Begins to send to a broker that has come."""
        self._waiting[broker.id] = asyncio.Queue()
        self._tasks[broker.id] = asyncio.get_running_loop().create_task(self._run(broker, self._waiting[broker.id]))
        if broker.registers_again:
            self._watches[broker.id] = SimulatedWatch(self._address_of(broker.id), partial(self._on_ended, broker))

    def close(self, broker: int) -> None:
        """Ends what is sent to a broker that has gone."""
        self._waiting.pop(broker, None)
        task = self._tasks.pop(broker, None)
        if task is not None:
            task.cancel()
        watch = self._watches.pop(broker, None)
        if watch is not None:
            watch.close()

    def send(self, broker: int, requests: Iterable[ControlRequest]) -> None:
        """Sends requests after those that were given before."""
        for request in requests:
            self._waiting[broker].put_nowait(request)

    def close_all(self) -> None:
        """Ends everything, as the process dies."""
        for broker in list(self._tasks):
            self.close(broker)

    async def _run(self, broker: LiveBroker, waiting: asyncio.Queue[ControlRequest]) -> None:
        link: BrokerLink | None = None
        while True:
            request = await waiting.get()
            while True:
                try:
                    link = await self._linked(broker, link)
                    self._on_response(await _exchange(link, broker, request))
                    break
                except MillraceError:
                    await asyncio.sleep(RETRY_PAUSE_S)

    async def _linked(self, broker: LiveBroker, link: BrokerLink | None) -> BrokerLink:
        if link is not None and not link.is_closed:
            return link
        return await BrokerLink.connect(
            self._address_of(broker.id), client_id="", timeout_s=TIMEOUT_S, max_response_bytes=MAX_RESPONSE_BYTES
        )


async def _exchange(link: BrokerLink, broker: LiveBroker, request: ControlRequest) -> BrokerResponse:
    id_, epoch = broker.id, broker.epoch
    match request:
        case LeaderAndIsrRequest(roles):
            taken = await link.request(LEADER_AND_ISR, 7, roles)
            return BrokerResponse(id_, epoch, request, taken.error_code, role_outcomes(request, taken))
        case UpdateMetadataRequest(metadata):
            told = await link.request(UPDATE_METADATA, 8, metadata)
            return BrokerResponse(id_, epoch, request, told.error_code, {})
        case StopReplicaRequest(stops):
            stopped = await link.request(STOP_REPLICA, 4, stops)
            return BrokerResponse(id_, epoch, request, stopped.error_code, stop_outcomes(stopped))


class _Events:
    """Takes the place of the controller's queue: each event is done a moment later, in order."""

    def __init__(self, do: Callable[[Event], None], chance: Random) -> None:
        self._do = do
        self._chance = chance
        self._waiting: deque[Event] = deque()
        self._is_held = self._is_due = False

    def put(self, event: Event | None) -> None:
        if event is not None:
            self._waiting.append(event)
            self._schedule()

    def hold(self) -> None:
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._is_due and not self._is_held:
            self._is_due = True
            asyncio.get_running_loop().call_later(self._chance.uniform(0, LONGEST_TURN_S), self._turn)

    def _turn(self) -> None:
        self._is_due = False
        if not self._is_held:
            self._do(self._waiting.popleft())
            self._schedule()


class SimulatedController(Controller):
    """The controller of one simulated broker."""

    def __init__(  # noqa: PLR0917  the wiring of a broker, once
        self,
        session: ModelSession,
        broker_id: int,
        address_of: AddressOf,
        clock: Clock,
        chance: Random,
        anomaly: Callable[[str], None],
    ) -> None:
        super().__init__(session, broker_id, ControllerConfig(), _no_connection, clock)  # type: ignore[arg-type]
        self._address_of = address_of
        self._anomaly = anomaly
        self._simulated_events = _Events(self._do, chance)
        self._events = self._simulated_events  # type: ignore[assignment]
        self._all_channels: list[SimulatedChannels] = []

    def known_epochs(self) -> dict[int, int]:
        """Returns the epochs of the registrations that it knows of; none where it is not the controller."""
        return {} if self._active is None else {one: known.epoch for one, known in self._active.cluster.brokers.items()}

    def live_epochs(self) -> dict[int, int]:
        """Returns the epochs of those of them that have not announced their end."""
        live = frozenset() if self._active is None else self._active.cluster.live()
        return {one: epoch for one, epoch in self.known_epochs().items() if one in live}

    def take_for_ended(self, broker_id: int, epoch: int) -> None:
        """Takes a broker for ended that registered with an epoch, if this is the controller and still knows it so."""

        def end() -> None:
            if self._active is not None and self.known_epochs().get(broker_id) == epoch:
                broker = self._active.cluster.brokers[broker_id]
                if broker.registers_again:
                    self._active.process_ended(broker)

        self._events.put(end)

    def start(self) -> None:
        """Begins to claim the role."""
        self._events.put(self._claim_role)

    def pause(self) -> None:
        """Sleeps: what is to be done waits."""
        self._simulated_events.hold()

    def resume(self) -> None:
        """Wakes up, and goes on with what it was about to do."""
        self._simulated_events.release()

    def die(self) -> None:
        """Ends with its process."""
        self._simulated_events.hold()
        for channels in self._all_channels:
            channels.close_all()
        self._watch_over(None)

    def _do(self, event: Event) -> None:
        super()._do(lambda: self._observed(event))

    def _observed(self, event: Event) -> None:
        try:
            event()
        except MillraceError:
            raise
        except Exception as error:
            self._anomaly(f"controller {self._broker_id} fails: {error!r}")
            raise

    def _new_channels(self, on_response: OnResponse, on_ended: OnEnded) -> Any:
        channels = SimulatedChannels(self._address_of, on_response, on_ended)
        self._all_channels.append(channels)
        return channels

    def _new_watch(self, address: Address, on_ended: Callable[[], None]) -> Any:
        """Watches over the process of a broker by its registered address, `broker-ID`."""
        return SimulatedWatch(self._address_of(int(address.host.removeprefix("broker-"))), on_ended)

    def _begin_pause(self) -> None:
        active = self._active

        def ask_again() -> None:
            if self._active is active:
                self._ask_again()

        asyncio.get_running_loop().call_later(PAUSE_S, self._events.put, ask_again)

    def _pause(self) -> None:
        """Does not wait: events have pauses between them."""


def _no_connection(address: Address) -> object:
    raise AssertionError(f"channels of a simulation connect to {address} themselves")
