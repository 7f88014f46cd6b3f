"""The request log: one line for each request, or for each that took long.

    request.log.slower.than.ms    -1  none    0  every request    N  those that took N ms or more

    PRODUCE v9 of 127.0.0.1:40044 client app: 1043 bytes in, 51 out, ms: 0.004 in queue, 0.131 in handling, 0.160 in all

"In queue" is the time from the arrival of the bytes to the call of the handler. Produce requests that came together are
handled together, and the line of each has the time of all. The time between "in handling" and "in all" was spent
waiting for other replicas, for new records, and for earlier replies of the connection.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from millrace.wire.api import ApiKey
from millrace.wire.header import RequestHeader

logger = logging.getLogger("millrace_broker.requests")

OFF = -1


class RequestTimes(NamedTuple):
    """The times of requests that were handled together, in seconds of a monotonic clock."""

    arrived: float
    started: float
    handled: float


class RequestLog:
    """Writes the lines of the request log."""

    def __init__(self, slower_than_ms: int) -> None:
        self._slower_than_s = float("inf") if slower_than_ms == OFF else slower_than_ms / 1000

    def wants(self, seconds: float) -> bool:
        """Returns whether a request that took this long has a line."""
        return seconds >= self._slower_than_s

    def note(self, peer: str, header: RequestHeader, times: RequestTimes, reply_bytes: int, now: float) -> None:
        """Writes the line of a request whose reply, if it has one, has just been sent."""
        logger.info(
            "%s v%d of %s client %s: %d bytes in, %d out, ms: %.3f in queue, %.3f in handling, %.3f in all",
            ApiKey(header.api_key).name,
            header.api_version,
            peer,
            header.client_id,
            header.size_bytes,
            reply_bytes,
            1000 * (times.started - times.arrived),
            1000 * (times.handled - times.started),
            1000 * (now - times.arrived),
        )
