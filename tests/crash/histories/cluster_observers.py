"""Threads that run beside a workload: one moves the partitions of a cluster, another notes who leads them."""

import contextlib
import random
import threading
from collections import Counter, defaultdict

from millrace.client import Cluster
from millrace.client.replicas import Reassignments
from millrace.errors import MillraceError
from millrace_support.waiting import awaited

REQUEST_TIMEOUT_S = 5.0
PAUSE_S = 0.1
MOST_S = 8.0  # of a move, before it is cancelled


class Mover(threading.Thread):
    """Reassigns random partitions of a topic to two or to all brokers, in any order; one move in four is cancelled.

    While a broker is away, the cluster refuses moves or does not complete them; both outcomes are allowed.
    """

    def __init__(self, cluster, topic, partitions):
        super().__init__(name="mover", daemon=True)
        self.cluster, self.keys = cluster, [(topic, index) for index in range(partitions)]
        self.stopping, self.outcomes = threading.Event(), Counter()

    def run(self):
        while not self.stopping.wait(PAUSE_S):
            try:
                self.outcomes[self.move(random.choice(self.keys))] += 1
            except MillraceError:
                self.outcomes["moves without an answer"] += 1

    def move(self, key):
        """Moves a partition, and returns the name under which the outcome is counted."""
        brokers = list(self.cluster.brokers)
        target = random.sample(brokers, random.choice((2, len(brokers))))
        with Cluster(self.cluster.bootstrap, timeout_s=REQUEST_TIMEOUT_S) as cluster:
            moves = Reassignments(cluster)
            if moves.alter({key: target}):
                return "moves refused"
            if random.random() < 0.25:
                moves.cancel([key])
                return "moves cancelled"
            for _ in range(int(MOST_S / PAUSE_S)):
                if key not in moves.list() or self.stopping.wait(PAUSE_S):
                    return "moves"
            moves.cancel([key])
            return "moves cancelled"

    def stop(self):
        """Stops the thread, and moves all partitions to all brokers.

        The replicas in the metadata do not prove that: during a move they are the old and the new ones together, and
        the move may end on fewer brokers before the list of moves is asked for.
        """
        self.stopping.set()
        self.join()
        everywhere = dict.fromkeys(self.keys, sorted(self.cluster.brokers))
        awaited(lambda: self.asked(lambda moves: not moves.alter(everywhere)), "moves to all brokers are accepted")
        awaited(lambda: self.asked(lambda moves: not moves.list()), "all partitions are on all brokers again")

    def asked(self, holds):
        """Returns True if the controller answers and `holds` is true of its reassignments, else None."""
        with (
            contextlib.suppress(MillraceError),
            Cluster(self.cluster.bootstrap, timeout_s=REQUEST_TIMEOUT_S) as cluster,
        ):
            return holds(Reassignments(cluster)) or None
        return None


class LeaderWatch(threading.Thread):
    """Asks one broker all the time who leads; `leaders` has the ids by partition and leader epoch."""

    def __init__(self, broker, topic):
        super().__init__(name="leader-watch", daemon=True)
        self.broker, self.topic = broker, topic
        self.stopping, self.leaders = threading.Event(), defaultdict(set)

    def run(self):
        while not self.stopping.wait(PAUSE_S):
            try:
                self.look()
            except (MillraceError, LookupError):  # a broker that starts knows nothing yet
                continue

    def look(self):
        with Cluster(self.broker.bootstrap, timeout_s=REQUEST_TIMEOUT_S) as cluster:
            for index, one in cluster.metadata([self.topic]).topic(self.topic).partitions.items():
                if one.leader >= 0:
                    self.leaders[index, one.leader_epoch].add(one.leader)

    def stop(self):
        self.stopping.set()
        self.join()


def leaders_by_epoch(watches):
    """Returns the leaders that all watches together have seen, by partition and leader epoch."""
    found = defaultdict(set)
    for watch in watches:
        for key, leaders in watch.leaders.items():
            found[key] |= leaders
    return found
