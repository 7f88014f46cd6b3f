"""Processes of a history that are clients of librdkafka."""

import itertools
import random
import threading
import time
from concurrent.futures import Future

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from processes import MAX_OPEN_S, PATIENCE_S, PAUSE_S, StaleError

from millrace_tools.histories.events import Action, Outcome, Owning

ERRORS = (KafkaException, StaleError)
IN_ONE = 100
POLL_S = 0.1
COMMIT_PATIENCE_S = 20
GROUP = "members"
UNIMPORTANT = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE)


def sender(workload, process):
    """Sends a few values at a time, by an idempotent producer."""
    producer = Producer({
        "bootstrap.servers": workload.bootstrap, "enable.idempotence": True, "linger.ms": 0,
        "reconnect.backoff.max.ms": 500, "delivery.timeout.ms": 1000 * PATIENCE_S,
    })  # fmt: skip
    while not workload.stopping.wait(PAUSE_S):
        some = workload.some_sends()
        workload.recorder.invoke(process, Action.SEND, workload.sends(some))
        offsets = deliver(producer, workload.topic, some)
        is_done = len(offsets) == len(some)
        workload.recorder.end(process, Outcome.OK if is_done else Outcome.INFO, workload.sends(some, offsets))
        if not is_done:
            raise StaleError


def deliver(producer, topic, some):
    """Returns the offsets of the values that the broker has acknowledged, by value."""
    offsets = {}

    def told(value):
        def on_delivery(error, message):
            if error is None:
                offsets[value] = message.offset()

        return on_delivery

    for partition, value in some:
        producer.produce(topic, b"%d" % value, partition=partition, on_delivery=told(value))
    producer.flush(2 * PATIENCE_S)
    return offsets


def transactor(workload, process):
    """Runs transactions that read and write; every fifth is aborted."""
    producer = transactional(workload, process.rpartition("-")[0])
    consumer = reader_of_all(workload, process)
    while not workload.stopping.wait(PAUSE_S):
        transact(workload, process, producer, consumer)
    consumer.close()


def transact(workload, process, producer, consumer):
    some, offsets, steps, committing_ns = workload.some_sends(), {}, [], None
    workload.recorder.invoke(process, Action.TRANSACTION, workload.sends(some))
    outcome = Outcome.INFO
    try:
        producer.begin_transaction()
        steps = workload.polls(records_of(consumer.consume(IN_ONE, timeout=0)))
        offsets = deliver(producer, workload.topic, some)
        workload.stopping.wait(random.uniform(0, MAX_OPEN_S))
        if len(offsets) == len(some) and workload.is_to_commit():
            committing_ns = time.monotonic_ns()
            producer.commit_transaction(PATIENCE_S)
            outcome = Outcome.OK
        else:
            producer.abort_transaction(PATIENCE_S)
            outcome = Outcome.FAIL
    finally:
        steps += workload.sends(some, offsets)
        workload.recorder.end(process, outcome, steps, committing_ns=committing_ns)


def transactional(workload, role):
    """Returns a producer with the transactional id `role`, which fences the one before it."""
    producer = Producer({
        "bootstrap.servers": workload.bootstrap, "transactional.id": role, "linger.ms": 0,
        "reconnect.backoff.max.ms": 500,
    })  # fmt: skip
    producer.init_transactions(PATIENCE_S)
    return producer


def usurped(workload, process):
    """Runs transactions during which another producer takes the transactional id over: none of them may commit."""
    role, _, number = process.rpartition("-")
    producer = transactional(workload, role)
    for turn in itertools.count():
        if workload.stopping.wait(PAUSE_S):
            return
        producer = usurp(workload, f"{role}-{number}.{turn}", producer, role)


def usurp(workload, process, producer, role):
    """Runs such a transaction, which goes on in another partition after the takeover; returns the new producer."""
    before, after = ([(index, workload.new_value())] for index in random.sample(workload.partitions, 2))
    offsets, outcome, committing_ns = {}, Outcome.INFO, None
    workload.recorder.invoke(process, Action.TRANSACTION, workload.sends(before + after))
    try:
        producer.begin_transaction()
        offsets = deliver(producer, workload.topic, before)
        successor = transactional(workload, role)
        outcome = Outcome.FAIL
        offsets |= deliver(producer, workload.topic, after)
        committing_ns = time.monotonic_ns()
        producer.commit_transaction(PATIENCE_S)
        outcome = Outcome.OK
    except KafkaException:
        if outcome is Outcome.INFO:
            raise
    finally:
        workload.recorder.end(process, outcome, workload.sends(before + after, offsets), committing_ns=committing_ns)
    return successor


def reader_of_all(workload, process):
    """Returns a consumer that is assigned to all partitions, from their beginning."""
    consumer = Consumer({
        "bootstrap.servers": workload.bootstrap, "group.id": process, "isolation.level": "read_committed",
        "enable.auto.commit": False, "auto.offset.reset": "error", "reconnect.backoff.max.ms": 500,
    })  # fmt: skip
    workload.recorder.invoke(process, Action.ASSIGN)
    consumer.assign([TopicPartition(workload.topic, index, OFFSET_BEGINNING) for index in workload.partitions])
    workload.recorder.end(process, Outcome.OK)
    return consumer


def records_of(messages):
    """Returns (partition, offset, value) of each message; raises KafkaException unless an error is unimportant."""
    for one in messages:
        if one.error() is not None and one.error().code() not in UNIMPORTANT:
            raise KafkaException(one.error())
    return [(one.partition(), one.offset(), one.value()) for one in messages if one.error() is None]


def assigned(workload, process):
    """Reads all partitions until the workload stops."""
    consumer = reader_of_all(workload, process)
    while not workload.stopping.is_set():
        poll(workload, process, lambda: consumer.consume(IN_ONE, timeout=POLL_S))
    # After hundreds of leader changes `close` may never return (librdkafka issue 4884); the history needs no clean end.
    threading.Thread(target=consumer.close, daemon=True).start()


def poll(workload, process, consume):
    workload.recorder.invoke(process, Action.POLL)
    steps, outcome = [], Outcome.INFO
    try:
        steps, outcome = workload.polls(records_of(consume())), Outcome.OK
    finally:
        workload.recorder.end(process, outcome, steps)


def subscribed(workload, process):
    """Reads as a member of a group, commits now and then, and leaves after 30 to 100 polls; rebalances are recorded."""
    consumer = Consumer({
        "bootstrap.servers": workload.bootstrap, "group.id": GROUP, "isolation.level": "read_committed",
        "enable.auto.commit": False, "auto.offset.reset": "earliest", "session.timeout.ms": 6000,
        "max.poll.interval.ms": 10_000, "reconnect.backoff.max.ms": 500,
    })  # fmt: skip
    rebalances = []
    consumer.subscribe([workload.topic], on_assign=noted(rebalances), on_revoke=noted(rebalances))
    for _ in range(random.randint(30, 100)):
        if workload.stopping.is_set():
            break
        seen = []
        poll(workload, process, lambda seen=seen: until_rebalanced(consumer, rebalances, seen))
        if rebalances:
            rebalances.clear()
            workload.recorder.invoke(process, Action.SUBSCRIBE)
            workload.recorder.end(process, Outcome.OK)
            poll(workload, process, lambda seen=seen: seen)
        elif random.random() < 0.2 and consumer.assignment():
            commit(workload, process, consumer)
    consumer.close()


def commit(workload, process, consumer):
    ends = [one for one in consumer.position(consumer.assignment()) if one.offset >= 0]
    if not ends:
        return
    outcome, steps = Outcome.INFO, committed_steps(workload, Action.COMMIT, ends)
    workload.recorder.invoke(process, Action.COMMIT, steps, group=GROUP)
    try:
        told = committed(consumer, ends)
        outcome = Outcome.INFO if any(one.error for one in told) else Outcome.OK
    finally:
        workload.recorder.end(process, outcome)


def committed(consumer, ends):
    """Returns the result of `commit`; raises StaleError if it hangs, as it may when the coordinator is lost."""
    told = Future()

    def commit():
        try:
            told.set_result(consumer.commit(offsets=ends, asynchronous=False))
        except KafkaException as error:
            told.set_exception(error)

    threading.Thread(target=commit, daemon=True).start()
    try:
        return told.result(COMMIT_PATIENCE_S)
    except TimeoutError:
        raise StaleError from None


def committed_steps(workload, action, offsets):
    return [Owning(action, workload.name_of(one.partition), None, one.offset) for one in offsets]


def watcher(workload, process):
    """Asks for the committed offsets of the group until the workload stops."""
    consumer = asking(workload)
    while not workload.stopping.wait(PAUSE_S):
        look(workload, process, consumer)
    consumer.close()


def look_once(workload, process, group):
    """Reads the committed offsets of a group once, and notes them in the history."""
    consumer = asking(workload, group)
    look(workload, process, consumer, group)
    consumer.close()


def asking(workload, group=GROUP):
    """Returns a consumer with the id of a group that never joins it."""
    return Consumer({
        "bootstrap.servers": workload.bootstrap, "group.id": group, "isolation.level": "read_committed",
        "reconnect.backoff.max.ms": 500,
    })  # fmt: skip


def look(workload, process, consumer, group=GROUP):
    steps, outcome = [], Outcome.INFO
    workload.recorder.invoke(process, Action.COMMITTED, group=group)
    places = [TopicPartition(workload.topic, index) for index in workload.partitions]
    try:
        told = [one for one in consumer.committed(places, PATIENCE_S) if not one.error and one.offset >= 0]
        steps, outcome = committed_steps(workload, Action.COMMITTED, told), Outcome.OK
    finally:
        workload.recorder.end(process, outcome, steps)


def noted(rebalances):
    return lambda consumer, partitions: rebalances.append(partitions)


def until_rebalanced(consumer, rebalances, after):
    """Returns the messages before a rebalance; a message that the call with the rebalance returned goes to `after`."""
    messages = []
    while len(messages) < IN_ONE:
        message = consumer.poll(0 if messages else POLL_S)
        if rebalances:
            after += [message] if message is not None else []
            return messages
        if message is None:
            return messages
        messages.append(message)
    return messages


def read_to_the_end(workload, process):
    """Reads every partition from its beginning to its end, when no client sends any more."""
    consumer = reader_of_all(workload, process)
    ends = {
        index: consumer.get_watermark_offsets(TopicPartition(workload.topic, index), PATIENCE_S)[1]
        for index in workload.partitions
    }
    deadline = time.monotonic() + 2 * PATIENCE_S
    while any(one.offset < ends[one.partition] for one in consumer.position(consumer.assignment())):
        assert time.monotonic() < deadline, f"not all is read: {consumer.position(consumer.assignment())} of {ends}"
        poll(workload, process, lambda: consumer.consume(IN_ONE, timeout=POLL_S))
    consumer.close()


def end_transactions(workload, role):
    """Starts another producer of the transactional id, which aborts what the last one has left open."""
    transactional(workload, role)
