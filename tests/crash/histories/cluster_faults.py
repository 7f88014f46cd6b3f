"""What happens to one broker of a cluster: a fault begins, lasts, and is healed when its function returns."""

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
    """A moment, or so long that the session with ZooKeeper ends."""
    random.choice((a_moment, beyond_the_session))()


def heal(cluster):
    """What was sent arrives late, or never."""
    cluster.heal(breaks=random.choice((False, True)))


def killed(cluster, broker):
    cluster.brokers[broker].kill()
    either()
    cluster.brokers[broker].start()


def bounced(cluster, broker):
    """A clean stop, and a start."""
    cluster.brokers[broker].restart()


def paused(cluster, broker):
    cluster.brokers[broker].send_signal(signal.SIGSTOP)
    beyond_the_session()
    cluster.brokers[broker].send_signal(signal.SIGCONT)


def cut_off(cluster, broker):
    """The other brokers are out of reach; ZooKeeper and clients are not."""
    cluster.cut_between(broker, others(cluster, broker))
    either()
    heal(cluster)


def cut_from_one(cluster, broker):
    """One other broker is out of reach."""
    cluster.cut_between(broker, [random.choice(others(cluster, broker))])
    either()
    heal(cluster)


def unheard(cluster, broker):
    """It does not reach the other brokers; they reach it."""
    for other in others(cluster, broker):
        cluster.cut_from(broker, other)
    either()
    heal(cluster)


def cut_from_zookeeper(cluster, broker):
    cluster.cut_from_zookeeper(broker)
    either()
    heal(cluster)


def isolated(cluster, broker):
    """The other brokers and ZooKeeper are out of reach, and clients still come: what a former leader may do."""
    cluster.cut_between(broker, others(cluster, broker))
    cluster.cut_from_zookeeper(broker)
    beyond_the_session()
    heal(cluster)


def expired(cluster, broker):
    """The session with ZooKeeper ends, while everything is in reach."""
    cluster.expire_session(broker)


def all_expired(cluster, _):
    """No broker reaches ZooKeeper, until all sessions have ended."""
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
    """Two are away for a while, and nothing can be acknowledged."""
    cluster.brokers[broker].send_signal(signal.SIGSTOP)
    killed(cluster, random.choice(others(cluster, broker)))
    cluster.brokers[broker].send_signal(signal.SIGCONT)


def out_of_disk(cluster, broker):
    """No file may grow above the size that one of the logs has now."""
    pid, folder = cluster.brokers[broker].pid, cluster.brokers[broker].data_dir
    sizes = [file.stat().st_size for file in folder.glob(f"{EVENTS}-*/*.log")]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (random.choice(sizes), resource.RLIM_INFINITY))
    either()
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def wiped(cluster, broker):
    """It comes back with an empty disk; before, all replicas are in sync, so that others have what it had."""
    cluster.all_in_sync()
    cluster.brokers[broker].kill()
    shutil.rmtree(cluster.brokers[broker].data_dir)
    either()
    cluster.brokers[broker].start()


def others(cluster, broker):
    return [each for each in cluster.brokers if each != broker]


def leader(cluster):
    """The leader of one of the partitions."""
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
