"""Processes of a history that are Apache Kafka's own clients, in Java, of several versions side by side.

    with java_roles("3.9", "4.1") as roles, playing(cluster, file, ROLES, further=roles):
        …

A JVM has all clients of a version (`HistoryClients.java`). It does one task of a client at a time, and what it does is
recorded here: the beginning before the task is sent, the end when its answer has come.
"""

import contextlib
import json
import random
import socket
import subprocess
import time
from functools import partial
from pathlib import Path

from processes import MAX_OPEN_S, PATIENCE_S, PAUSE_S, StaleError

from millrace.addresses import LOOPBACK
from millrace.errors import SetupError
from millrace.lifeline import cut_lifeline, start_with_lifeline
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_support.java_programs import with_program
from millrace_tools.histories.events import Action, Outcome, Owning

PROGRAM = Path(__file__).with_name("HistoryClients.java")
PEERS = Path(__file__).parents[3] / ".peers"
FLAGS = ("-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
POLL_MS = 100
ANSWER_S = 4 * PATIENCE_S
LOST = ("LogTruncationException", "OffsetOutOfRangeException")  # committed records are gone: nobody may be told so
PRODUCER = {"acks": "all", "enable.idempotence": "true", "linger.ms": "0", "delivery.timeout.ms": "60000"}
CONSUMER = {
    "isolation.level": "read_committed", "enable.auto.commit": "false", "default.api.timeout.ms": "20000",
    "auto.offset.reset": "none",
}  # fmt: skip
MEMBERS = {
    "classic": {"group.protocol": "classic", "session.timeout.ms": "6000", "heartbeat.interval.ms": "500"},
    "consumer": {"group.protocol": "consumer"},
}
GROUPS = {protocol: f"java-{protocol}" for protocol in MEMBERS}  # each has members of all versions


class JavaError(Exception):
    """The client has raised an exception, which the message names."""


class LostRecordsError(Exception):
    """The client was told that committed records are gone."""


ERRORS = (JavaError, StaleError)


def found(*versions):
    """Returns those of these versions of Apache Kafka whose jars are there."""
    there = []
    for version in versions:
        with contextlib.suppress(SetupError):
            find_kafka(version, PEERS)
            there.append(version)
    return there


@contextlib.contextmanager
def java_roles(*versions):
    """Yields what `playing` takes as further roles: clients of each version, in JVMs that end with the block."""
    with contextlib.ExitStack() as stack:
        roles = {}
        for version in versions:
            port = stack.enter_context(jvm(version))
            for name, play in PLAYS.items():
                roles[f"java-{version}-{name}"] = (partial(play, port), ERRORS)
        yield roles


@contextlib.contextmanager
def jvm(version):
    """Yields the port of a JVM that has the clients of a version."""
    command = with_program(find_kafka(version, PEERS), PROGRAM).command(PROGRAM.stem, flags=FLAGS)
    process = start_with_lifeline(command, stdout=subprocess.PIPE)
    try:
        with process.stdout:
            yield int(process.stdout.readline())
    finally:
        cut_lifeline(process)


class JavaClient:
    """A client in a JVM, which ends with the `with` block."""

    def __init__(self, port, kind, workload, properties):
        self._connection = socket.create_connection((LOOPBACK, port), timeout=ANSWER_S)
        self._lines = self._connection.makefile("rw")
        self._topic = workload.topic
        common = {"bootstrap.servers": workload.bootstrap, "reconnect.backoff.max.ms": "500"}
        self._say({"kind": kind, "properties": common | properties})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._lines.close()
        self._connection.close()

    def do(self, task, **words):
        """Returns the answer to a task; raises JavaError, or LostRecordsError."""
        self._say({"do": task, "topic": self._topic, **words})
        line = self._lines.readline()
        assert line, "the JVM has ended"
        answer = json.loads(line)
        if "failed" in answer:
            raise (LostRecordsError if answer["failed"] in LOST else JavaError)(answer["words"])
        return answer

    def _say(self, line):
        self._lines.write(json.dumps(line) + "\n")
        self._lines.flush()


def deliver(producer, some):
    """Returns the offsets of the values that were acknowledged, by value."""
    return {int(value): offset for value, offset in producer.do("send", records=some)["offsets"]}


def sender(port, workload, process):
    """Sends a few values at a time, by an idempotent producer."""
    with JavaClient(port, "producer", workload, PRODUCER) as producer:
        while not workload.stopping.wait(PAUSE_S):
            some, offsets, outcome = workload.some_sends(), {}, Outcome.INFO
            workload.recorder.invoke(process, Action.SEND, workload.sends(some))
            try:
                offsets = deliver(producer, some)
                outcome = Outcome.OK if len(offsets) == len(some) else Outcome.INFO
            finally:
                workload.recorder.end(process, outcome, workload.sends(some, offsets))
            if outcome is Outcome.INFO:
                raise StaleError


def transactor(port, workload, process):
    """Runs transactions that read and write; every fifth is aborted."""
    properties = {**PRODUCER, "transactional.id": process.rpartition("-")[0]}
    with (
        JavaClient(port, "producer", workload, properties) as producer,
        reader_of_all(port, workload, process) as consumer,
    ):
        producer.do("init")
        while not workload.stopping.wait(PAUSE_S):
            transact(workload, process, producer, consumer)


def transact(workload, process, producer, consumer):
    some, offsets, steps, committing_ns = workload.some_sends(), {}, [], None
    workload.recorder.invoke(process, Action.TRANSACTION, workload.sends(some))
    outcome = Outcome.INFO
    try:
        producer.do("begin")
        steps = workload.polls(consumer.do("poll", ms=0)["records"])
        offsets = deliver(producer, some)
        workload.stopping.wait(random.uniform(0, MAX_OPEN_S))
        if len(offsets) == len(some) and workload.is_to_commit():
            committing_ns = time.monotonic_ns()
            producer.do("commit")
            outcome = Outcome.OK
        else:
            producer.do("abort")
            outcome = Outcome.FAIL
    finally:
        steps += workload.sends(some, offsets)
        workload.recorder.end(process, outcome, steps, committing_ns=committing_ns)


def reader_of_all(port, workload, process):
    """Returns a consumer that is assigned to all partitions, from their beginning."""
    consumer = JavaClient(port, "consumer", workload, CONSUMER)
    workload.recorder.invoke(process, Action.ASSIGN)
    consumer.do("assign", partitions=list(workload.partitions))
    workload.recorder.end(process, Outcome.OK)
    return consumer


def assigned(port, workload, process):
    """Reads all partitions until the workload stops."""
    with reader_of_all(port, workload, process) as consumer:
        while not workload.stopping.is_set():
            poll(workload, process, lambda: consumer.do("poll", ms=POLL_MS)["records"])


def poll(workload, process, read):
    workload.recorder.invoke(process, Action.POLL)
    steps, outcome = [], Outcome.INFO
    try:
        steps, outcome = workload.polls(read()), Outcome.OK
    finally:
        workload.recorder.end(process, outcome, steps)


def member(protocol, port, workload, process):
    """Reads as a member of a group, commits now and then, and leaves after 30 to 100 polls; rebalances are recorded."""
    group = GROUPS[protocol]
    properties = {**CONSUMER, **MEMBERS[protocol], "group.id": group, "auto.offset.reset": "earliest"}
    with JavaClient(port, "consumer", workload, properties) as consumer:
        consumer.do("subscribe")
        ends = {}
        for _ in range(random.randint(30, 100)):
            if workload.stopping.is_set():
                break
            read_on(workload, process, consumer, ends)
            if ends and random.random() < 0.2:
                commit(workload, process, consumer, ends, group)


def read_on(workload, process, consumer, ends):
    """Polls once; `ends` becomes, for each partition that was read since the last rebalance, the offset to commit.

    The client rebalances before it returns records.
    """
    told = []

    def read():
        told.append(consumer.do("poll", ms=POLL_MS))
        return [] if told[0]["is_rebalanced"] else told[0]["records"]

    poll(workload, process, read)
    (answer,) = told
    if answer["is_rebalanced"]:
        ends.clear()
        workload.recorder.invoke(process, Action.SUBSCRIBE)
        workload.recorder.end(process, Outcome.OK)
        poll(workload, process, lambda: answer["records"])
    ends |= {partition: offset + 1 for partition, offset, _ in answer["records"]}


def commit(workload, process, consumer, ends, group):
    outcome = Outcome.INFO
    steps = [Owning(Action.COMMIT, workload.name_of(partition), None, end) for partition, end in ends.items()]
    workload.recorder.invoke(process, Action.COMMIT, steps, group=group)
    try:
        consumer.do("commit", offsets=list(ends.items()))
        outcome = Outcome.OK
    finally:
        workload.recorder.end(process, outcome)


PLAYS = {
    "sender": sender,
    "transactor": transactor,
    "assigned": assigned,
    "classic-member": partial(member, "classic"),
    "consumer-member": partial(member, "consumer"),
}
