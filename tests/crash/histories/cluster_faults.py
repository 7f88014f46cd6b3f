"""Faults of one broker, or of all: each function begins a fault, lets it last, and heals it before it returns."""

import random
import resource
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

from millrace.testing.broker import BrokerProcess
from millrace_support.relayed_clusters import SESSION_S

EVENTS = "events"


def a_moment():
    threading.Event().wait(random.uniform(0.2, 1.5))


def beyond_the_session():
    threading.Event().wait(SESSION_S + random.uniform(0.5, 2.5))


def either():
    """Waits a moment, or so long that the session with ZooKeeper ends."""
    random.choice((a_moment, beyond_the_session))()


def heal(cluster):
    """Heals all networks; bytes that were held back arrive late, or their connections break."""
    cluster.heal(breaks=random.choice((False, True)))


def killed(cluster, broker):
    cluster.brokers[broker].kill()
    either()
    cluster.brokers[broker].start()


def bounced(cluster, broker):
    """Stops the broker cleanly, and starts it again."""
    cluster.brokers[broker].restart()


def started_as(cluster, broker, program):
    """Stops the broker cleanly once all replicas are in sync, and starts another version of it."""
    cluster.all_in_sync()
    cluster.brokers[broker].stop()
    cluster.brokers[broker].program = program
    cluster.brokers[broker].start()


def paused(cluster, broker):
    cluster.brokers[broker].send_signal(signal.SIGSTOP)
    beyond_the_session()
    cluster.brokers[broker].send_signal(signal.SIGCONT)


def cut_off(cluster, broker):
    """Cuts the network between the broker and all others; it still reaches ZooKeeper and its clients."""
    cluster.cut_between(broker, others(cluster, broker))
    either()
    heal(cluster)


def cut_from_one(cluster, broker):
    """Cuts the network between the broker and one other."""
    cluster.cut_between(broker, [random.choice(others(cluster, broker))])
    either()
    heal(cluster)


def unheard(cluster, broker):
    """Holds back the connections that the broker opens to others; the others still reach it."""
    for other in others(cluster, broker):
        cluster.cut_from(broker, other)
    either()
    heal(cluster)


def cut_from_zookeeper(cluster, broker):
    cluster.cut_from_zookeeper(broker)
    either()
    heal(cluster)


def isolated(cluster, broker):
    """Cuts the broker off from all others and from ZooKeeper; clients still reach the former leader."""
    cluster.cut_between(broker, others(cluster, broker))
    cluster.cut_from_zookeeper(broker)
    beyond_the_session()
    heal(cluster)


def expired(cluster, broker):
    """Ends the broker's session with ZooKeeper, which it can reach again at once."""
    cluster.expire_session(broker)


def all_expired(cluster, _):
    """Cuts all brokers off from ZooKeeper until their sessions have ended."""
    for each in cluster.brokers:
        cluster.cut_from_zookeeper(each)
    beyond_the_session()
    heal(cluster)


def all_killed(cluster, _):
    for each in cluster.brokers.values():
        each.kill()
    with ThreadPoolExecutor() as starting:
        list(starting.map(BrokerProcess.start, cluster.brokers.values()))


def paused_beside_a_killed_one(cluster, broker):
    """Takes two of three brokers away for a while, so that no write with acks=all is acknowledged."""
    cluster.brokers[broker].send_signal(signal.SIGSTOP)
    killed(cluster, random.choice(others(cluster, broker)))
    cluster.brokers[broker].send_signal(signal.SIGCONT)


def out_of_disk(cluster, broker):
    """Lets no file of the broker grow above the size that one of its logs has now."""
    pid, folder = cluster.brokers[broker].pid, cluster.brokers[broker].data_dir
    sizes = [file.stat().st_size for file in folder.glob(f"{EVENTS}-*/*.log")]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (random.choice(sizes), resource.RLIM_INFINITY))
    either()
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def wiped(cluster, broker):
    """Restarts the broker with an empty disk, once all replicas are in sync and others have its records."""
    cluster.all_in_sync()
    cluster.brokers[broker].kill()
    shutil.rmtree(cluster.brokers[broker].data_dir)
    either()
    cluster.brokers[broker].start()


def others(cluster, broker):
    return [each for each in cluster.brokers if each != broker]


def leader(cluster):
    """Returns the leader of a random partition."""
    partition = random.choice((0, 1, 2))
    return cluster.until(lambda one: one.leader in cluster.brokers, EVENTS, partition).leader


def controller(cluster):
    return cluster.controller()


VICTIMS = (leader, controller)
FAULTS = (
    killed, isolated, bounced, expired, paused, cut_off, cut_from_zookeeper, unheard, cut_from_one, wiped,
    paused_beside_a_killed_one, out_of_disk, all_expired, all_killed,
)  # fmt: skip
PLAN = [(VICTIMS[(turn + at) % 2], fault) for turn in range(2) for at, fault in enumerate(FAULTS)]
