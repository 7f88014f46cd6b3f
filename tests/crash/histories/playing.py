"""Runs a workload against one or several brokers: clients in some roles record a history, then everything is read."""

import contextlib

import with_aiokafka
import with_confluent
import with_java
from processes import Process, Workload

from millrace.client import Cluster
from millrace_support.broker_clusters import create_replicated
from millrace_tools.histories.events import read_history
from millrace_tools.histories.recorder import Recorder

TOPIC, PARTITIONS = "events", 3
PROPERTIES = {
    "log.flush.interval.messages": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
CLUSTER_PROPERTIES = {
    **{name: value for name, value in PROPERTIES.items() if not name.startswith("log.flush")},
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "log.cleaner.enable": "false",  # each broker would compact in its own time
}
PATIENCE_S = 240
ROLES = {
    "confluent-sender": (with_confluent.sender, with_confluent.ERRORS),
    "aiokafka-sender": (with_aiokafka.sender, with_aiokafka.ERRORS),
    "confluent-transactor": (with_confluent.transactor, with_confluent.ERRORS),
    "aiokafka-transactor": (with_aiokafka.transactor, with_aiokafka.ERRORS),
    "confluent-usurped": (with_confluent.usurped, with_confluent.ERRORS),
    "confluent-assigned": (with_confluent.assigned, with_confluent.ERRORS),
    "aiokafka-assigned": (with_aiokafka.assigned, with_aiokafka.ERRORS),
    "first-member": (with_confluent.subscribed, with_confluent.ERRORS),
    "second-member": (with_confluent.subscribed, with_confluent.ERRORS),
    "watcher": (with_confluent.watcher, with_confluent.ERRORS),
}
TRANSACTIONAL = ("-transactor", "-usurped")  # how such roles end; a role is the transactional id, too


@contextlib.contextmanager
def playing(broker, file, roles, *, further=None, replication_factor=1, is_read_at_end=True):
    """Yields the recorder while clients in these roles run; afterwards the file has their whole history.

    `further` has roles beside those of ROLES, by name.
    """
    with Cluster(broker.bootstrap) as cluster:
        create_replicated(cluster, TOPIC, PARTITIONS, replication_factor)
    recorder = Recorder(file)
    workload = Workload(broker.bootstrap, recorder, TOPIC, PARTITIONS)
    played = {role: ROLES[role] for role in roles} | (further or {})
    processes = [Process(workload, role, *how) for role, how in played.items()]
    for process in processes:
        process.start()
    try:
        yield recorder
    finally:
        workload.stopping.set()
        for process in processes:
            process.join(PATIENCE_S)
    unwell = [process for process in processes if process.is_alive() or process.failure]
    assert not unwell, "\n".join(map(Process.said, unwell))
    for role in played:
        if role.endswith(TRANSACTIONAL):
            with_confluent.end_transactions(workload, role)
    if is_read_at_end:
        with_confluent.read_to_the_end(workload, "last")
        for group in (with_confluent.GROUP, *with_java.GROUPS.values()):
            with_confluent.look_once(workload, f"last-watcher-of-{group}", group)


def history_of(file):
    file.seek(0)
    return read_history(file)
