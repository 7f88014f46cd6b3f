"""`millrace bench stalls`: how long a client waits while another sends the dearest requests that are accepted.

    by entries      for each API, arrays as long as a message may have them (`dear_requests`)
    by records      ListOffsets and Produce of batches of some kilobytes that hold millions of records, or much more
    by number       Metadata, thousands in flight on one connection; connections that send halves of requests
    by the disk     Produce to a topic with flush.messages=1, whose syncs take a second each

The first are sent by an account that may do everything, and by one that has no rights. Beside them another client, in
a process of its own, sends Produce, Metadata and Fetch in turn, one in flight. Each row has the 99.9th percentile and
the longest of its waits, and by how much the broker's memory grew at most.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from millrace.addresses import parse_address
from millrace.client.connection import Connection
from millrace.clock import SystemClock
from millrace.errors import ClientError, error_name
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, encode_batch
from millrace.security.client_security import ClientSecurity
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.decoder import MAX_ELEMENTS
from millrace.wire.frame import SIZE_BYTES, framed
from millrace.wire.header import encode_request_header
from millrace_benchmarks.dear_requests import SPARE_ELEMENTS, DearRequest, dear_requests
from millrace_benchmarks.harness import Figure, percentiles
from millrace_benchmarks.subjects import Subject, millrace

SMALL, COMPACTED, HELD, SYNCED = "small", "compacted", "held", "synced"
SLOW_DOOR = """
import os, sys, time
from millrace.fs import OsFileSystem

fsync = OsFileSystem.fsync


def slow(self, fd):
    if "/{topic}-" in os.readlink(f"/proc/self/fd/{{fd}}"):
        time.sleep({sync_s})
    return fsync(self, fd)


OsFileSystem.fsync = slow
from millrace_broker.__main__ import main
sys.exit(main())
"""
HELD_BYTES = 4 << 20  # of a batch that is looked through
HALF_BYTES, LARGE_BYTES = 800_000, 900_000
LOGIN = "LOGIN"
PASSWORD = "stalls"  # noqa: S105 -- of a user of a broker that lives as long as the benchmark
PROPERTIES = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_nobody="{PASSWORD}";'
    ),
}
NOBODY = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="nobody" password="{PASSWORD}";'
    ),
}
TIMEOUT_S = 120.0
BASE_MS = 1_700_000_000_000
GOAL_P999_MS, GOAL_LONGEST_MS = 50.0, 250.0
METADATA_VERSION, FETCH_VERSION, PRODUCE_VERSION, LIST_OFFSETS_VERSION = 9, 12, 9, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class StallsEffort:
    """How much is sent.

    Attributes:
        elements: In the arrays of a request.
        seconds: For how long at least each request is repeated.
        records: In the batch of tiny records; the others have parts of that.
        bomb_bytes: What some kilobytes of gzip hold.
        in_flight: Requests of Metadata on one connection.
        half_sent: Connections that send half of a request.
        sync_s: How long a sync of the slow disk takes.
        topics: That they tell of.
        apis: Whose requests are sent; those of all if empty.
    """

    elements: int = MAX_ELEMENTS - SPARE_ELEMENTS
    seconds: float = 2.0
    records: int = 2_000_000
    bomb_bytes: int = 400 << 20
    in_flight: int = 5000
    half_sent: int = 1100
    sync_s: float = 1.0
    topics: int = 100
    apis: frozenset[ApiKey] = frozenset()


FULL = StallsEffort()


def run(place: Path, effort: StallsEffort = FULL) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with ExitStack() as stack:
        broker = stack.enter_context(millrace(place, properties=PROPERTIES, listeners={LOGIN: "SASL_PLAINTEXT"}))
        broker.create_topic(SMALL)
        broker.create_topic(HELD, 12, config={"max.message.bytes": str(HELD_BYTES)})
        broker.create_topic(COMPACTED, config={"cleanup.policy": "compact"})
        for number in range(effort.topics):
            broker.create_topic(f"further-{number}")
        owner = _Account(broker.bootstrap)
        nobody = _Account(broker.addresses[LOGIN], ClientSecurity.from_properties(NOBODY))
        bench = _Bench(broker, stack.enter_context(_other(broker.bootstrap)), effort.seconds)
        figures = bench.beside("nothing", lambda: time.sleep(effort.seconds))
        for request in _by_records(owner, effort):
            figures += bench.beside(request.name, partial(owner.send, request))
        figures += bench.beside("METADATA, many in flight", partial(_in_flight, owner, effort.in_flight))
        figures += bench.beside("halves of requests", partial(_halves, owner, effort.half_sent))
        for request in dear_requests(effort.elements):
            if not effort.apis or request.api_key in effort.apis:
                figures += bench.beside(request.name, partial(owner.send, request))
                figures += bench.beside(f"{request.name}, no rights", partial(nobody.send, request))
    return figures + _on_a_slow_disk(place, effort)


def _on_a_slow_disk(place: Path, effort: StallsEffort) -> list[Figure]:
    """Measures beside writes that wait for a disk; other topics are on it, too."""
    program = "-c", SLOW_DOOR.format(topic=SYNCED, sync_s=effort.sync_s)
    with ExitStack() as stack:
        broker = stack.enter_context(millrace(place, "slow", program=program))
        broker.create_topic(SMALL)
        broker.create_topic(SYNCED, config={"flush.messages": "1"})
        bench = _Bench(broker, stack.enter_context(_other(broker.bootstrap)), effort.seconds)
        message = _produce(SYNCED, 0, encode_batch([NewRecord(b"synced")]))
        request = DearRequest("PRODUCE, synced by a slow disk", ApiKey.PRODUCE, PRODUCE_VERSION, message)
        return bench.beside(request.name, partial(_Account(broker.bootstrap).send, request))


class _Account:
    """A client that sends dear requests."""

    def __init__(self, bootstrap: str, security: ClientSecurity = ClientSecurity.PLAINTEXT) -> None:
        self._address = parse_address(bootstrap)
        self._security = security
        self._connection: Connection | None = None

    def send(self, request: DearRequest) -> memoryview:
        """Sends a request and returns its answer; raises AnswerLostError where the broker refuses it."""
        self._connection = self._connection or self.connect()
        return self._connection.exchange(request.api_key, request.version, request.message)

    def connect(self) -> Connection:
        """Returns a new connection."""
        return Connection(
            self._address, client_id="stalls", timeout_s=TIMEOUT_S, clock=SystemClock(), security=self._security
        )


class _Bench:
    """Measures what a client waits for while something else is done again and again."""

    def __init__(self, broker: Subject, other: Pipe, seconds: float) -> None:
        self._broker = broker
        self._other = other
        self._seconds = seconds

    def beside(self, name: str, work: Callable[[], object]) -> list[Figure]:
        """Returns the figures of one row."""
        memory = _PeakMemory(self._broker.pid)
        self._other.send("begin")
        self._other.recv()
        taken_s = self._repeat(work)
        self._other.send("end")
        waits: list[float] = self._other.recv()
        taken = percentiles(waits, 1000)
        return [
            Figure(
                name=f"beside {name}: p99.9", value=taken["p99.9"], unit="ms",
                yardstick="bound", yardstick_value=GOAL_P999_MS, at_most=1.0,
            ),
            Figure(
                name="· longest wait", value=1000 * max(waits), unit="ms",
                yardstick="bound", yardstick_value=GOAL_LONGEST_MS, at_most=1.0,
            ),
            Figure(name="· p50", value=taken["p50"], unit="ms"),
            Figure(name="· the request itself", value=1000 * taken_s, unit="ms"),
            Figure(name="· memory grew by", value=memory.growth_mebibytes, unit="MiB"),
        ]  # fmt: skip

    def _repeat(self, work: Callable[[], object]) -> float:
        started, times = time.perf_counter(), 0
        while time.perf_counter() - started < self._seconds:
            work()
            times += 1
        return (time.perf_counter() - started) / times


class _PeakMemory:
    """The largest resident memory of a process since this was made (Linux)."""

    def __init__(self, pid: int) -> None:
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")  # sets the peak to what it is now
        self._status = Path(f"/proc/{pid}/status")
        self._before_kib = self._peak_kib()

    @property
    def growth_mebibytes(self) -> float:
        """By how much it has grown."""
        return (self._peak_kib() - self._before_kib) / 1024

    def _peak_kib(self) -> int:
        lines = self._status.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


@contextmanager
def _other(bootstrap: str) -> Iterator[Pipe]:
    """Yields the pipe of another client, in a process that ends with the block."""
    spawning = multiprocessing.get_context("spawn")
    pipe, its_pipe = spawning.Pipe()
    process = spawning.Process(target=_tell_waits, args=(bootstrap, its_pipe), daemon=True)
    process.start()
    its_pipe.close()
    try:
        yield pipe
    finally:
        pipe.close()
        process.join()


def _tell_waits(bootstrap: str, pipe: Pipe) -> None:
    """Sends small requests from each message of the pipe to the next one, and tells how long each has waited."""
    while True:
        try:
            pipe.recv()
        except EOFError:
            return
        with _Account(bootstrap).connect() as connection:
            pipe.send(None)  # it is connected
            waits = _waits(connection, lambda: not pipe.poll())
        pipe.recv()
        pipe.send(waits)


def _waits(connection: Connection, goes_on: Callable[[], bool]) -> list[float]:
    requests = [
        (ApiKey.PRODUCE, PRODUCE_VERSION, _produce(SMALL, 0, encode_batch([NewRecord(b"small")]))),
        (ApiKey.METADATA, METADATA_VERSION, _encoded(ApiKey.METADATA, METADATA_VERSION, _metadata_of(SMALL))),
        (ApiKey.FETCH, FETCH_VERSION, _encoded(ApiKey.FETCH, FETCH_VERSION, _fetch_of(SMALL))),
    ]
    waits: list[float] = []
    while goes_on() or not waits:
        for key, version, message in requests:
            started = time.perf_counter()
            connection.exchange(key, version, message)
            waits.append(time.perf_counter() - started)
    return waits


def _encoded(api_key: ApiKey, version: int, fields: dict[str, object]) -> bytes:
    return encode(api_key, version, Direction.REQUEST, fields)


def _metadata_of(topic: str) -> dict[str, object]:
    return {
        "topics": [{"name": topic}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def _fetch_of(topic: str) -> dict[str, object]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    return {
        "max_wait": 0,
        "min_bytes": 0,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
    }


def _produce(topic: str, partition: int, records: bytes) -> bytes:
    fields = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 30_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    }
    return encode(ApiKey.PRODUCE, PRODUCE_VERSION, Direction.REQUEST, fields)


def _list_offsets(*partitions: int) -> bytes:
    wanted = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": BASE_MS + 1} for index in partitions]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": HELD, "partitions": wanted}]}
    return encode(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, Direction.REQUEST, fields)


def _by_records(owner: _Account, effort: StallsEffort) -> Iterator[DearRequest]:
    """Yields requests whose records take long, after producing those that are looked for."""
    tiny = NewRecord(None, timestamp_ms=BASE_MS)
    last = NewRecord(None, timestamp_ms=BASE_MS + 1)
    bomb = NewRecord(bytes(effort.bomb_bytes), timestamp_ms=BASE_MS)
    _append(owner, 0, [*[tiny] * effort.records, last], Codec.ZSTD)
    for partition in range(1, 11):
        _append(owner, partition, [*[tiny] * (effort.records // 33), last], Codec.GZIP)
    _append(owner, 11, [bomb, last], Codec.GZIP)
    for name, partitions in (
        ("one batch of tiny records", (0,)),
        ("ten batches of gzip", range(1, 11)),
        ("a gzip bomb", (11,)),
    ):
        yield DearRequest(
            f"LIST_OFFSETS, {name}", ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, _list_offsets(*partitions)
        )
    keyed = [NewRecord(None, key=b"k", timestamp_ms=BASE_MS)] * (effort.records // 4)
    for codec in (Codec.GZIP, Codec.ZSTD):
        batch = encode_batch(keyed, codec=codec)
        name = f"PRODUCE, {len(keyed):,} records of {codec.name.lower()}, compacted"
        yield DearRequest(name, ApiKey.PRODUCE, PRODUCE_VERSION, _produce(COMPACTED, 0, batch))
    unkeyed = _produce(COMPACTED, 0, encode_batch([tiny] * (effort.records // 4), codec=Codec.ZSTD))
    yield DearRequest("PRODUCE, without keys, compacted", ApiKey.PRODUCE, PRODUCE_VERSION, unkeyed)
    again = _produce(SMALL, 0, encode_batch([bomb], codec=Codec.GZIP))
    yield DearRequest("PRODUCE, a gzip bomb", ApiKey.PRODUCE, PRODUCE_VERSION, again)


def _append(owner: _Account, partition: int, records: Sequence[NewRecord], codec: Codec) -> None:
    """Produces what is looked for later; raises ClientError where it is refused."""
    message = _produce(HELD, partition, encode_batch(records, codec=codec))
    answer = owner.send(DearRequest("", ApiKey.PRODUCE, PRODUCE_VERSION, message))
    (topic,) = decode(ApiKey.PRODUCE, PRODUCE_VERSION, Direction.RESPONSE, answer).responses
    (partition_answer,) = topic.partition_responses
    if partition_answer.error_code:
        raise ClientError(f"the broker refuses a batch: {error_name(partition_answer.error_code)}")


def _in_flight(account: _Account, count: int) -> None:
    """Sends requests of all topics' metadata without waiting for answers, and then reads these."""
    message = _encoded(ApiKey.METADATA, METADATA_VERSION, {**_metadata_of(SMALL), "topics": None})
    frame = framed(encode_request_header(ApiKey.METADATA, METADATA_VERSION, 0, "stalls"), message)
    with account.connect() as connection, connection.hand_over() as sending:
        sending.settimeout(TIMEOUT_S)
        sender = threading.Thread(target=sending.sendall, args=(frame * count,))
        sender.start()
        with sending.makefile("rb") as answers:
            for _ in range(count):
                answers.read(int.from_bytes(answers.read(SIZE_BYTES), "big"))
        sender.join()


def _halves(account: _Account, count: int) -> None:
    """Sends halves of requests, each on its own connection, and beside them a whole large one."""
    half = framed(bytes(HALF_BYTES))[: HALF_BYTES // 2]
    with ExitStack() as stack:
        for _ in range(count):
            sending = stack.enter_context(account.connect().hand_over())
            with suppress(BlockingIOError):
                sending.send(half)
        record = NewRecord(bytes(LARGE_BYTES))
        account.send(DearRequest("", ApiKey.PRODUCE, PRODUCE_VERSION, _produce(SMALL, 0, encode_batch([record]))))
