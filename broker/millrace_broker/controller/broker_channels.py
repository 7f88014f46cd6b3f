"""Sends control requests to brokers: to each in order, one at a time, again until it answers or is gone.

Beside its channel each broker that registers again when it is taken for gone has a watch over its process.

Each broker has a thread with a blocking connection. A request whose answer is lost is sent again on another connection,
so a broker may carry out any request twice. What is still to be sent when the broker goes, or when the controller
resigns, is dropped: a broker that registers again is sent everything, and the next controller sends everything to all
brokers.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from millrace.addresses import PLAINTEXT
from millrace.client.connection import Connection
from millrace.errors import BrokerUnreachableError, is_unforeseen
from millrace.wire.messages import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
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
from millrace_broker.controller.process_watch import Connect, ProcessWatch

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1
OnResponse = Callable[[BrokerResponse], None]
OnEnded = Callable[[LiveBroker], None]


class BrokerChannels:
    """Sends the controller's requests to all live brokers, in order, by one connection to each.

    Args:
        connect: makes the connections.
        on_response: called with each response, in the thread of the broker's channel.
        on_ended: called in a thread of its own with a broker whose process has ended.
        listener: the one by which brokers reach each other.
    """

    def __init__(self, connect: Connect, on_response: OnResponse, on_ended: OnEnded, listener: str = PLAINTEXT) -> None:
        self._connect = connect
        self._on_response = on_response
        self._on_ended = on_ended
        self._listener = listener
        self._channels: dict[int, _Channel] = {}
        self._watches: dict[int, ProcessWatch] = {}

    def open(self, broker: LiveBroker) -> None:
        """Begins to send requests to a broker that has registered, and to watch its process."""
        self._channels[broker.id] = _Channel(broker, self._listener, self._connect, self._on_response)
        endpoint = broker.endpoint(self._listener)
        if endpoint is not None and broker.registers_again:
            ended = partial(self._on_ended, broker)
            self._watches[broker.id] = ProcessWatch(f"broker-{broker.id}", endpoint.address, self._connect, ended)

    def close(self, broker: int) -> None:
        """Ends the sending to a broker that is gone, and the watch over it; a request under way may still reach it."""
        channel = self._channels.pop(broker, None)
        if channel is not None:
            channel.close()
        watch = self._watches.pop(broker, None)
        if watch is not None:
            watch.close()

    def send(self, broker: int, requests: Iterable[ControlRequest]) -> None:
        """Queues requests to a broker, behind those that were given before."""
        self._channels[broker].send(requests)


class _Channel:
    """The connection and the queue of requests to one registration of a broker; a restarted broker gets another."""

    def __init__(self, broker: LiveBroker, listener: str, connect: Connect, on_response: OnResponse) -> None:
        self._broker = broker
        self._listener = listener
        self._connect = connect
        self._on_response = on_response
        self._connection: Connection | None = None
        self._waiting: deque[ControlRequest] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        name = f"controller-to-{broker.id}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def send(self, requests: Iterable[ControlRequest]) -> None:
        with self._changed:
            self._waiting.extend(requests)
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        while (request := self._next()) is not None:
            response = self._response_to(request)
            if response is not None:
                self._on_response(response)
        self._disconnect()

    def _next(self) -> ControlRequest | None:
        """Waits for the next request and returns it; None when the channel is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            return None if self._is_closed else self._waiting.popleft()

    def _response_to(self, request: ControlRequest) -> BrokerResponse | None:
        """Sends a request, and again after any failure, until it is answered; None if the channel is closed before."""
        was_logged = False
        while not self._is_closed:
            try:
                return self._exchange(request)
            except Exception as error:
                self._disconnect()
                if not was_logged:
                    logger.warning(
                        "broker %d is asked again and again: %s", self._broker.id, error, exc_info=is_unforeseen(error)
                    )
                was_logged = True
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed, RETRY_PAUSE_S)
        return None

    def _exchange(self, request: ControlRequest) -> BrokerResponse:
        connection = self._connected()
        broker, epoch = self._broker.id, self._broker.epoch
        match request:
            case LeaderAndIsrRequest(roles):
                taken = connection.request(LEADER_AND_ISR, roles)
                return BrokerResponse(broker, epoch, request, taken.error_code, role_outcomes(request, taken))
            case UpdateMetadataRequest(metadata):
                return BrokerResponse(
                    broker, epoch, request, connection.request(UPDATE_METADATA, metadata).error_code, {}
                )
            case StopReplicaRequest(stops):
                stopped = connection.request(STOP_REPLICA, stops)
                return BrokerResponse(broker, epoch, request, stopped.error_code, stop_outcomes(stopped))

    def _connected(self) -> Connection:
        if self._connection is None:
            endpoint = self._broker.endpoint(self._listener)
            if endpoint is None:
                raise BrokerUnreachableError(f"broker {self._broker.id} has no listener {self._listener}")
            self._connection = self._connect(endpoint.address)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
