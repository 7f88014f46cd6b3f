"""The request log: one line for each request, for each that took long, or for each of some clients.

    request.log.slower.than.ms    -1  none    0  every request    N  those that took N ms or more
    request.log.clients           client ids, separated by commas: every request of theirs

Both can be changed while the broker runs.

    PRODUCE v9 of 127.0.0.1:40044 client app: 1043 bytes in, 51 out, ms: 0.004 in queue, 0.131 in handling, 0.160 in all

"In queue" is the time from the arrival of the bytes to the call of the handler. Produce requests that came together are
handled together, and the line of each has the time of all. The time between "in handling" and "in all" was spent
waiting for other replicas, for new records, and for earlier replies of the connection.
"""

from __future__ import annotations

import logging

from millrace.wire.api import ApiKey
from millrace.wire.header import RequestHeader
from millrace_broker.handlers.api import Services
from millrace_broker.log_lines.output import REQUESTS
from millrace_broker.metrics import RequestTimes

logger = logging.getLogger(REQUESTS)

OFF = -1


class RequestLog:
    """Writes the lines of the request log, for the requests that the live `request.log.…` properties choose."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def is_on(self) -> bool:
        """Returns whether the properties have any request logged."""
        config = self._services.config
        return config.request_log_slower_than_ms != OFF or config.request_log_clients != ""

    def note(self, peer: str, header: RequestHeader, times: RequestTimes, reply_bytes: int, now: float) -> None:
        """Writes a line with the sizes and times of a request, if the properties choose it, once the reply is sent."""
        if not self._wants(header, 1000 * (now - times.arrived)):
            return
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

    def _wants(self, header: RequestHeader, milliseconds: float) -> bool:
        config = self._services.config
        if 0 <= config.request_log_slower_than_ms <= milliseconds:
            return True
        return header.client_id in config.request_log_clients.split(",") if config.request_log_clients else False
