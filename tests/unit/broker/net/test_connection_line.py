"""Replies that wait in line on one connection, and requests that wait for theirs: they are bounded."""

import asyncio

from millrace.clock import SystemClock
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, encode
from millrace.wire.frame import framed
from millrace.wire.header import encode_request_header
from millrace_broker.broker import Broker
from millrace_broker.net.connection import MAX_PENDING_BYTES
from millrace_broker.startup.options import parse_options
from millrace_broker.storage import TopicPartition

REQUESTS, PARTITIONS = 1000, 400
WRITES, MEGABYTE = 12, 1 << 20
LONG_POLL = {
    "replica_id": -1, "max_wait": 60_000, "min_bytes": 1, "max_bytes": 1, "isolation_level": 0,
    "topics": [{"topic": "events", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]}],
}  # fmt: skip


def request(api_key, version, fields):
    header = encode_request_header(api_key, version, 1, "c")
    return framed(header, encode(api_key, version, Direction.REQUEST, fields))


async def until(found):
    while True:
        if what := found():
            return what
        await asyncio.sleep(0)


def is_stopped(connection):
    """Whether no request is read until answers have left."""
    return not (connection.is_reading or connection._is_turn_over or connection._long_bytes)


async def scene(broker):
    await broker._services.topics.create("events", partitions=PARTITIONS)
    reader, writer = await asyncio.open_connection(*broker._server._listening[0].sockets[0].getsockname())
    writer.write(request(ApiKey.FETCH, 4, LONG_POLL))
    writer.write(request(ApiKey.METADATA, 1, {"topics": None}) * REQUESTS)
    (connection,) = await until(lambda: broker._server._connections)
    await until(lambda: connection._in_line > REQUESTS or is_stopped(connection))
    waiting = sum(slot.bytes_out for slot in connection._pending)
    broker._services.replicas.append(
        TopicPartition("events", 0), encode_batch([NewRecord(b"value")])
    )  # ends the long poll
    for _ in range(1 + REQUESTS):
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    assert (connection._pending_bytes, connection.is_reading) == (0, True)
    writer.close()
    return waiting


def run(tmp_path, scene):
    async def with_a_broker():
        broker = Broker(
            parse_options(["--standalone", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]), SystemClock()
        )
        await broker.start()
        try:
            return await asyncio.wait_for(scene(broker), 60)
        finally:
            await broker.stop()

    return asyncio.run(with_a_broker())


def test_long_answers_behind_a_long_poll_are_not_all_made(tmp_path):
    assert MAX_PENDING_BYTES <= run(tmp_path, scene) < 2 * MAX_PENDING_BYTES


async def large_requests(broker):
    """Sends writes that are answered once the broker reads no more of them; returns how many bytes wait by then."""
    waiting = []

    def answer_later(*_):
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    services = broker._services
    produce = services.apis[ApiKey.PRODUCE]
    services.apis = {ApiKey.PRODUCE: produce._replace(handle_all=lambda _, asked: [answer_later() for _ in asked])}
    reader, writer = await asyncio.open_connection(*broker._server._listening[0].sockets[0].getsockname())
    header = encode_request_header(ApiKey.PRODUCE, 7, 1, "c")
    writer.write(framed(header, bytes(MEGABYTE)) * WRITES)
    (connection,) = await until(lambda: broker._server._connections)
    await until(lambda: is_stopped(connection))
    taken = len(waiting)
    for answered in range(WRITES):
        await until(lambda: len(waiting) > answered)  # noqa: B023
        waiting[answered].set_result([b"answer"])
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    await until(lambda: connection.is_reading)
    assert connection._pending_bytes == 0
    writer.close()
    return taken * MEGABYTE


def test_writes_that_wait_for_followers_are_bounded(tmp_path):
    assert MAX_PENDING_BYTES <= run(tmp_path, large_requests) < 2 * MAX_PENDING_BYTES
