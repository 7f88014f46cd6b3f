"""How long partitions have no leader when theirs stops or dies.

    SIGTERM or SIGKILL ──► [its registration in ZooKeeper goes] ──► each other broker names other leaders for all
    partitions ──► a record with acks=all is taken

The registration of a killed broker goes when the controller notices that its process has ended; Apache Kafka's goes at
the end of its session. Clients ask the other brokers in turn, and rest for as long as the answers took.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, suppress

from millrace.client.cluster import Cluster
from millrace.client.sync_producer import SyncProducer
from millrace.errors import ClientError, MillraceError
from millrace.leader_states import NO_LEADER
from millrace.records.record import NewRecord
from millrace_benchmarks.cluster import TIMEOUT_S, ClusterSubject
from millrace_benchmarks.harness import Samples

PAUSE_S = 0.005


def fail_over(subject: ClusterSubject, topic: str, number: signal.Signals) -> Samples:
    """Ends the leader of a topic's first partition, and returns the seconds until others lead all that it led.

    `after the signal` has the seconds since the signal, `after the session` those since the registration was gone.
    At the end the broker is started again and back in sync.
    """
    leader = subject.leader(topic)
    broker = subject.brokers[leader]
    with ExitStack() as stack:
        others = [
            stack.enter_context(Cluster(other.bootstrap, timeout_s=TIMEOUT_S))
            for other_id, other in subject.brokers.items()
            if other_id != leader
        ]
        for other in others:
            other.metadata([topic])
        started = time.perf_counter()
        os.kill(broker.pid, number)
        session_ended = _await_session_end(subject, leader) if number == signal.SIGKILL else started
        for other in others:
            _await_moved(other, topic, leader)
        SyncProducer(others[0]).send(topic, 0, [NewRecord(b"served")])
        ended = time.perf_counter()
    broker.stop()
    broker.start()
    subject.await_in_sync(topic)
    return {"after the signal": ended - started, "after the session": ended - session_ended}


def _await_session_end(subject: ClusterSubject, broker_id: int) -> float:
    while subject.is_registered(broker_id):
        time.sleep(PAUSE_S)
    return time.perf_counter()


def _await_moved(other: Cluster, topic: str, former: int) -> None:
    """Waits until a broker names a leader for every partition that is not the former one."""
    deadline = time.perf_counter() + TIMEOUT_S
    while (asked := time.perf_counter()) < deadline:
        with suppress(MillraceError):
            found = other.metadata([topic]).topic(topic).partitions
            if all(one.leader not in (former, NO_LEADER) for one in found.values()):
                return
        time.sleep(max(PAUSE_S, time.perf_counter() - asked))
    raise ClientError(f"{topic} is still led by broker {former}, or by none")
