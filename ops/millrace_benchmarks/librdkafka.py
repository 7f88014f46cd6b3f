"""librdkafka at C's speed: a call passes a whole array of messages to the library that confluent-kafka carries.

A Python call per message would measure Python. The caller proves deliveries by the log end offset.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from millrace.errors import ClientError, SetupError
from millrace.extras import install_command

PRODUCER, CONSUMER = 0, 1
COPY_PAYLOAD, BLOCK_WHEN_FULL = 0x2, 0x4
MESSAGES_PER_CALL = 10_000
ERROR_BYTES = 512
CONF_OK = 0
FLUSH_TIMEOUT_MS = 120_000
CONSUME_TIMEOUT_MS = 30_000
TRANSACTION_CALLS = ("rd_kafka_init_transactions", "rd_kafka_begin_transaction", "rd_kafka_commit_transaction")
# What a producer needs to reach its highest rate.
BULK_SETTINGS = {
    "linger.ms": "5",
    "batch.size": "1000000",
    "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": "1048576",
    "acks": "all",
    "log_level": "3",
}
FIRST_OFFSET = 0  # librdkafka waits half a second before it asks for a logical offset of a leader it does not know yet


class _Message(ctypes.Structure):
    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("_private", ctypes.c_void_p),
    )


def _messages(values: bytes, size_bytes: int, count: int) -> tuple[ctypes.Array[_Message], ctypes.Array[ctypes.c_char]]:
    """Returns `count` messages, whose values are cut from `values` in turn, and the memory that they point to."""
    payload = ctypes.create_string_buffer(values, len(values))
    messages = (_Message * count)()
    for number, message in enumerate(messages):
        place = number * size_bytes % (len(values) - size_bytes + 1)
        message.payload, message.len = ctypes.addressof(payload) + place, size_bytes
    return messages, payload


def _load() -> ctypes.CDLL:
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise SetupError(f"this benchmark needs confluent-kafka: {install_command('demo')}")
    libraries = sorted(Path(spec.origin).parents[1].glob("confluent_kafka.libs/librdkafka*.so*"))
    if not libraries:
        raise SetupError("confluent-kafka carries no librdkafka here: install it from its wheel")
    for dependency in sorted(libraries[0].parent.glob("*.so*")):
        if dependency not in libraries:
            ctypes.CDLL(str(dependency), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(libraries[0]))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_topic_new", *TRANSACTION_CALLS):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_error_string.restype = ctypes.c_char_p
    return library


class Client:
    """A librdkafka client; its settings can bring librdkafka's own mock broker in this process."""

    def __init__(self, kind: int, settings: Mapping[str, str], *, delivery_reports: bool = False) -> None:
        import confluent_kafka  # noqa: F401, PLC0415  # its wheel loads the libraries that librdkafka needs

        self._library = _load()
        # The callback per message is a C function without effect, for the time of a Python one would be measured.
        self._ignore = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p)
        error = ctypes.create_string_buffer(ERROR_BYTES)
        conf = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        for name, value in settings.items():
            if self._library.rd_kafka_conf_set(conf, name.encode(), value.encode(), error, ERROR_BYTES) != CONF_OK:
                raise ClientError(f"librdkafka: {error.value.decode()}")
        if delivery_reports:
            self._library.rd_kafka_conf_set_dr_msg_cb(conf, self._ignore)
        self._handle = ctypes.c_void_p(self._library.rd_kafka_new(kind, conf, error, ERROR_BYTES))
        if not self._handle.value:
            raise ClientError(f"librdkafka: {error.value.decode()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Discards what is not sent, and ends the client's threads."""
        self._library.rd_kafka_destroy(self._handle)

    def produce(self, topic: str, values: bytes, size_bytes: int, count: int) -> None:
        """Produces `count` values to partition 0, cut from `values` in turn, and waits until all are acknowledged."""
        library, handle = self._library, self._topic(topic)
        messages, payload = _messages(values, size_bytes, min(count, MESSAGES_PER_CALL))
        left = count
        while left:
            wanted = min(left, MESSAGES_PER_CALL)
            left -= library.rd_kafka_produce_batch(handle, 0, COPY_PAYLOAD | BLOCK_WHEN_FULL, messages, wanted)
            library.rd_kafka_poll(self._handle, 0)
        del payload  # what the messages point to
        if library.rd_kafka_flush(self._handle, FLUSH_TIMEOUT_MS):
            raise ClientError(f"{library.rd_kafka_outq_len(self._handle)} messages were not acknowledged")
        library.rd_kafka_topic_destroy(handle)

    def produce_one_by_one(self, topic: str, value: bytes, count: int, interval_s: float = 0.0) -> list[float]:
        """Produces a value `count` times, each after the one before is acknowledged; returns the seconds of each.

        Any two begin at least `interval_s` apart. The client needs delivery reports.
        """
        library, handle, seconds = self._library, self._topic(topic), []
        started = -math.inf
        for _ in range(count):
            time.sleep(max(started + interval_s - time.perf_counter(), 0))
            started = time.perf_counter()
            library.rd_kafka_produce(handle, 0, COPY_PAYLOAD, value, len(value), None, 0, None)
            if not library.rd_kafka_poll(self._handle, FLUSH_TIMEOUT_MS):
                raise ClientError("a message was not acknowledged")
            seconds.append(time.perf_counter() - started)
        library.rd_kafka_topic_destroy(handle)
        return seconds

    def init_transactions(self) -> None:
        """Begins to use the transactional id of the settings; it is called once."""
        self._check(self._library.rd_kafka_init_transactions(self._handle, FLUSH_TIMEOUT_MS))

    def begin_transaction(self) -> None:
        """Begins a transaction, to which all that is produced then belongs."""
        self._check(self._library.rd_kafka_begin_transaction(self._handle))

    def commit_transaction(self) -> None:
        """Commits what was produced since `begin_transaction`, and waits for the answer."""
        self._check(self._library.rd_kafka_commit_transaction(self._handle, FLUSH_TIMEOUT_MS))

    def _check(self, error: int | None) -> None:
        if error:
            text: bytes = self._library.rd_kafka_error_string(ctypes.c_void_p(error))
            raise ClientError(f"librdkafka: {text.decode()}")

    def consume(self, topic: str, count: int) -> None:
        """Consumes at least `count` messages of partition 0 from offset 0."""
        library, handle = self._library, self._topic(topic)
        library.rd_kafka_consume_start(handle, 0, ctypes.c_int64(FIRST_OFFSET))
        got = 0
        while got < count:
            received = library.rd_kafka_consume_callback(handle, 0, CONSUME_TIMEOUT_MS, self._ignore, None)
            if received <= 0:
                raise ClientError(f"nothing came after {got} of {count} messages")
            got += received
        library.rd_kafka_consume_stop(handle, 0)
        library.rd_kafka_topic_destroy(handle)

    def _topic(self, topic: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._library.rd_kafka_topic_new(self._handle, topic.encode(), None))
