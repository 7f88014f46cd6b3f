"""Copies one topic to another by aiokafka, for ever and exactly once: `BOOTSTRAP NAME`, from NAME-in to NAME-out.

Any error ends it, and so does a transaction that takes too long: another instance goes on from what was committed.
"""

import asyncio
import sys

import aiokafka

PATIENCE_S = 60
IN_ONE = 10
CLIENT = {"request_timeout_ms": 20_000, "retry_backoff_ms": 50}


async def main(bootstrap, name):
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name, **CLIENT)
    consumer = aiokafka.AIOKafkaConsumer(
        f"{name}-in", bootstrap_servers=bootstrap, group_id=name, group_instance_id=name, enable_auto_commit=False,
        auto_offset_reset="earliest", isolation_level="read_committed", **CLIENT,
    )  # fmt: skip
    await asyncio.wait_for(producer.start(), PATIENCE_S)  # ends what another instance left, before its offsets are read
    await asyncio.wait_for(consumer.start(), PATIENCE_S)
    while True:
        messages = await asyncio.wait_for(consumer.getmany(timeout_ms=100, max_records=IN_ONE), PATIENCE_S)
        if messages:
            await asyncio.wait_for(copy(producer, messages, name), PATIENCE_S)


async def copy(producer, messages, name):
    await producer.begin_transaction()
    for place, some in messages.items():
        for one in some:
            await producer.send(f"{name}-out", one.value, partition=place.partition)
    ends = {place: some[-1].offset + 1 for place, some in messages.items()}
    await producer.send_offsets_to_transaction(ends, name)
    await producer.commit_transaction()


asyncio.run(main(*sys.argv[1:]))
