"""Tells that the process of another broker has ended, long before its session with ZooKeeper has.

    connect ──► the connection breaks, as all do when a process ends, its listener perhaps a moment later
            ──► new connections are refused, now and after CONFIRM_PAUSE_S: nobody listens there any more ──► `on_ended`
            ──► anything else: connect again, after a pause; a longer one where the connection lasted only a moment

Only a watch that was connected once tells anything: a broker that this one can't reach may be alive to all others. A
process that hangs, or whose network is cut, refuses nothing: only its session tells of it. A broker whose listener is
gone though its process lives is taken for ended; it registers again (`millrace.zk.session`), and its former leader
epochs keep what it still does from counting.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from millrace.addresses import Address
from millrace.client.connection import Connection
from millrace.errors import is_unforeseen

logger = logging.getLogger(__name__)

CONFIRM_PAUSE_S = 0.1
SHORT_LIVED_PAUSE_S = 1.0
RETRY_PAUSE_S = 0.1
PROBE_TIMEOUT_S = 1.0
BROKEN = select.POLLIN | select.POLLRDHUP | select.POLLHUP | select.POLLERR

Connect = Callable[[Address], Connection]  # raises BrokerUnreachableError


class ProcessWatch:
    """Watches a process of a broker by a connection to it, in a thread of its own, from now on.

    Args:
        name: whose process it is, for the name of the thread.
        address: where it listens.
        connect: makes a connection.
        on_ended: called once, in the watch's thread, when the process has ended.
    """

    def __init__(self, name: str, address: Address, connect: Connect, on_ended: Callable[[], None]) -> None:
        self._address = address
        self._connect = connect
        self._on_ended = on_ended
        self._socket: socket.socket | None = None
        self._is_closed = threading.Event()
        self._closing = threading.Lock()
        threading.Thread(target=self._run, name=f"watch-over-{name}", daemon=True).start()

    def close(self) -> None:
        """Ends the watch; does nothing if it has ended."""
        with self._closing:
            self._is_closed.set()
            if self._socket is not None:
                with suppress(OSError):  # the peer was faster
                    self._socket.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        was_connected = False
        while not self._is_closed.is_set():
            pauses_s = [RETRY_PAUSE_S]
            try:
                connection = self._connect(self._address)
            except Exception as error:  # noqa: BLE001 -- whatever it is, the process is watched
                level = logging.WARNING if is_unforeseen(error) else logging.DEBUG
                logger.log(level, "there is no connection to the process at %s: %s", self._address, error)
            else:
                was_connected = True
                if not self._was_long_lived(connection.hand_over()):
                    pauses_s.append(SHORT_LIVED_PAUSE_S)
            for pause_s in pauses_s:
                if was_connected and self._is_gone():
                    self._on_ended()
                    return
                self._is_closed.wait(pause_s)

    def _was_long_lived(self, connected: socket.socket) -> bool:
        """Waits until the connection breaks or the watch is closed; returns whether it lasted more than a moment."""
        with connected:
            with self._closing:
                self._socket = connected
                if self._is_closed.is_set():
                    return False
            poll = select.poll()
            poll.register(connected, BROKEN)
            was_long_lived = not poll.poll(SHORT_LIVED_PAUSE_S * 1000)
            if was_long_lived:
                poll.poll()
            with self._closing:
                self._socket = None
            return was_long_lived

    def _is_gone(self) -> bool:
        if self._is_closed.is_set() or not is_refused(self._address):
            return False
        return not self._is_closed.wait(CONFIRM_PAUSE_S) and is_refused(self._address)


def is_refused(address: Address) -> bool:
    """Returns whether a connection to the address is refused, as nobody listens; False if no machine answers."""
    try:
        socket.create_connection(address, PROBE_TIMEOUT_S, all_errors=True).close()
    except ExceptionGroup as errors:  # one for each address of the name
        answers = [isinstance(one, ConnectionRefusedError) for one in errors.exceptions]
        return any(answers) and not any(isinstance(one, TimeoutError) for one in errors.exceptions)
    except OSError:
        return False
    return False
