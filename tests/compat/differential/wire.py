"""One connection to a broker of any kind, by Kafka's own message definitions: what it answers, or that it does not."""

import socket
from itertools import count

from millrace.errors import MillraceError

TIMEOUT_S = 120.0
CLOSED = "the connection is closed"
SILENT = "no answer"
ANSWERED = "an answer"
SIZE_BYTES = 4


class ConnectionClosedError(MillraceError):
    """The broker hung up."""


class Wire:
    """Requests in order on one socket, from an address of the loopback interface."""

    def __init__(self, messages, bootstrap, source="127.0.0.1", client_id="judge"):
        host, _, port = bootstrap.rpartition(":")
        self._messages = messages
        self._client_id = client_id
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S, (source, 0))
        self._correlation_ids = count(1)

    def close(self):
        self._socket.close()

    def send(self, api, version, fields, *, unknown_tags=False):
        """Send a request; what `receive` wants to know of it."""
        correlation_id = next(self._correlation_ids)
        self.send_frame(
            self._messages.encode_request(
                api, version, correlation_id, fields, unknown_tags=unknown_tags, client_id=self._client_id
            )
        )
        return api, version, correlation_id

    def send_frame(self, frame):
        try:
            self._socket.sendall(len(frame).to_bytes(SIZE_BYTES, "big") + frame)
        except OSError as error:
            raise ConnectionClosedError(str(error)) from None

    def receive(self, sent):
        """The answer to what was sent, decoded to its last byte."""
        api, version, correlation_id = sent
        answered, answer = self._messages.decode_response(api, version, self.receive_frame())
        assert answered == correlation_id, f"the answer to request {correlation_id} names {answered}"
        return answer

    def receive_frame(self):
        return self._exactly(int.from_bytes(self._exactly(SIZE_BYTES), "big"))

    def _exactly(self, size):
        received = bytearray()
        while len(received) < size:
            try:
                chunk = self._socket.recv(size - len(received))
            except ConnectionError:
                chunk = b""
            if not chunk:
                raise ConnectionClosedError(f"after {len(received)} of {size} bytes")
            received += chunk
        return bytes(received)
