"""Processes of a history that are clients of aiokafka."""

import asyncio
import random
import time

import aiokafka
from aiokafka.errors import KafkaError
from processes import MAX_OPEN_S, PATIENCE_S, PAUSE_S

from millrace_tools.histories.events import Action, Outcome

ERRORS = (KafkaError, TimeoutError, AssertionError)  # the last where a broker that starts tells of no brokers yet
CLIENT = {"request_timeout_ms": 20_000, "retry_backoff_ms": 50}
POLL_MS = 100


def sender(workload, process):
    """Sends a few values at a time, by an idempotent producer."""

    async def play():
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=workload.bootstrap, enable_idempotence=True, **CLIENT)
        await started(producer)
        try:
            while not workload.stopping.is_set():
                await send(workload, process, producer)
                await asyncio.sleep(PAUSE_S)
        finally:
            await stopped(producer)

    asyncio.run(play())


async def started(client):
    try:
        await asyncio.wait_for(client.start(), PATIENCE_S)
    except BaseException:
        await stopped(client)
        raise


async def stopped(client):
    """Stops a client whose broker may be gone, and whose own tasks may end the stop with CancelledError."""
    try:
        await asyncio.wait_for(client.stop(), PATIENCE_S)
    except (*ERRORS, asyncio.CancelledError):
        return


async def send(workload, process, producer):
    some, offsets, outcome = workload.some_sends(), {}, Outcome.INFO
    workload.recorder.invoke(process, Action.SEND, workload.sends(some))
    try:
        offsets = await deliver(producer, workload.topic, some)
        outcome = Outcome.OK
    finally:
        workload.recorder.end(process, outcome, workload.sends(some, offsets))


async def deliver(producer, topic, some):
    """Returns the offsets by value; raises an error if one is not acknowledged."""
    coming = [await producer.send(topic, b"%d" % value, partition=partition) for partition, value in some]
    told = await asyncio.wait_for(asyncio.gather(*coming), 2 * PATIENCE_S)
    return {value: one.offset for (_, value), one in zip(some, told, strict=True)}


def transactor(workload, process):
    """Runs transactions that write; every fifth is aborted."""

    async def play():
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=workload.bootstrap, transactional_id=process.rpartition("-")[0], **CLIENT
        )
        await started(producer)
        try:
            while not workload.stopping.is_set():
                await transact(workload, process, producer)
                await asyncio.sleep(PAUSE_S)
        finally:
            await stopped(producer)

    asyncio.run(play())


async def transact(workload, process, producer):
    some, offsets, outcome, committing_ns = workload.some_sends(), {}, Outcome.INFO, None
    workload.recorder.invoke(process, Action.TRANSACTION, workload.sends(some))
    try:
        await producer.begin_transaction()
        offsets = await deliver(producer, workload.topic, some)
        await asyncio.sleep(random.uniform(0, MAX_OPEN_S))
        if workload.is_to_commit():
            committing_ns = time.monotonic_ns()
            await asyncio.wait_for(producer.commit_transaction(), PATIENCE_S)
            outcome = Outcome.OK
        else:
            await asyncio.wait_for(producer.abort_transaction(), PATIENCE_S)
            outcome = Outcome.FAIL
    finally:
        workload.recorder.end(process, outcome, workload.sends(some, offsets), committing_ns=committing_ns)


def assigned(workload, process):
    """Reads all partitions until the workload stops."""

    async def play():
        places = [aiokafka.TopicPartition(workload.topic, index) for index in workload.partitions]
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=workload.bootstrap, isolation_level="read_committed", auto_offset_reset="none",
            enable_auto_commit=False, **CLIENT,
        )  # fmt: skip
        await started(consumer)
        try:
            workload.recorder.invoke(process, Action.ASSIGN)
            consumer.assign(places)
            for place in places:
                consumer.seek(place, 0)
            workload.recorder.end(process, Outcome.OK)
            while not workload.stopping.is_set():
                await poll(workload, process, consumer)
        finally:
            await stopped(consumer)

    asyncio.run(play())


async def poll(workload, process, consumer):
    workload.recorder.invoke(process, Action.POLL)
    steps, outcome = [], Outcome.INFO
    try:
        found = await consumer.getmany(timeout_ms=POLL_MS)
        records = [(place.partition, one.offset, one.value) for place, some in found.items() for one in some]
        steps, outcome = workload.polls(records), Outcome.OK
    finally:
        workload.recorder.end(process, outcome, steps)
