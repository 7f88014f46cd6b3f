"""Replies that wait in line on one connection: they are bounded, whatever they wait behind."""

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


async def scene(broker):
    await broker._services.topics.create("events", partitions=PARTITIONS)
    reader, writer = await asyncio.open_connection(*broker._server._listener.sockets[0].getsockname())
    writer.write(request(ApiKey.FETCH, 4, LONG_POLL))
    writer.write(request(ApiKey.METADATA, 1, {"topics": None}) * REQUESTS)
    (connection,) = await until(lambda: broker._server._connections)
    await until(lambda: connection._in_line > REQUESTS or not connection._is_reading)
    waiting = sum(slot.bytes_out for slot in connection._pending)
    broker._services.replicas.append(
        TopicPartition("events", 0), encode_batch([NewRecord(b"value")])
    )  # ends the long poll
    for _ in range(1 + REQUESTS):
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    assert (connection._pending_bytes, connection._is_reading) == (0, True)
    writer.close()
    return waiting


def test_long_answers_behind_a_long_poll_are_not_all_made(tmp_path):
    async def run():
        broker = Broker(
            parse_options(["--standalone", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]), SystemClock()
        )
        await broker.start()
        try:
            return await asyncio.wait_for(scene(broker), 60)
        finally:
            await broker.stop()

    waiting = asyncio.run(run())
    assert MAX_PENDING_BYTES <= waiting < 2 * MAX_PENDING_BYTES
