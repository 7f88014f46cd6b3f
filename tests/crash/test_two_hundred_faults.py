"""Three brokers, two of which must be in sync, through 200 faults, of which a third damages what is on their disks.

Brokers are killed, stopped and paused, and whole disks are wiped. `chaos/fault_plan.py` can draw flipped bits, too, and
files that are cut off or deleted, of running brokers and of stopped ones. Meanwhile clients send with acks=all, copy in
transactions, some of which are aborted, and read committed records (`chaos/chaos_load.py`). Nothing that was
acknowledged is lost, nothing of an aborted transaction is read, no transaction is torn, the group's offsets agree with
the copies, all replicas are equal byte for byte, and no range is left damaged.

A record survives where a sound copy does. So damage is done to one broker at a time: the next one comes once all
brokers have checked all segments, named no damage, and are in sync. Kills and pauses come while damage is not healed
yet, to any broker, but each once all are in sync, since the last one in sync may be the damaged one. A file that is
deleted under a running broker is still there for it; it is restarted with the same fault.

`MILLRACE_CHAOS_SEED=4711` draws the faults of a seed again; each run prints its own.
"""

import contextlib
import json
import logging
import os
import random
import urllib.error
import urllib.request
from collections import Counter
from itertools import islice

import pytest
from chaos_load import Load, create_topics
from content_judge import content_findings
from fault_injection import happen
from fault_plan import WIPED, drawn
from replica_judge import replica_findings

from millrace_support.admin_requests import change_request, read_request
from millrace_support.broker_clusters import broker_cluster
from millrace_support.waiting import PATIENCE_S, awaited

logger = logging.getLogger(__name__)
SEGMENT_BYTES = "15000"
PROPERTIES = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": SEGMENT_BYTES,
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.segment.bytes": SEGMENT_BYTES,
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.bytes": SEGMENT_BYTES,
    "log.index.interval.bytes": "1000",
    "log.retention.ms": "-1",
    "log.segment.delete.delay.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0.1",
}
EVENTS, COPIES = 20, 10  # that are read between two faults
SHOWN = 20
KINDS_OF_DAMAGE = (WIPED,)  # what a broker gets over by itself


def wholly_checked(broker):
    """Returns True if the broker has checked all segments and no range is damaged; None if it can't say so yet."""
    try:
        with urllib.request.urlopen(change_request(broker, "maintenance/verify"), timeout=PATIENCE_S) as answer:
            reports = json.load(answer)["partitions"]
        with urllib.request.urlopen(read_request(broker, "readyz"), timeout=PATIENCE_S) as answer:
            damage = json.load(answer)["checks"]["damage"]
    except urllib.error.HTTPError as error:  # it still opens its logs
        if error.code != 503:
            raise
        return None
    return (not damage and not any(report["findings"] for report in reports)) or None


def damage_of(cluster):
    """Returns what each broker's health says of damage."""
    found = {}
    for number, broker in cluster.brokers.items():
        try:
            with urllib.request.urlopen(read_request(broker, "readyz"), timeout=PATIENCE_S) as answer:
                found[number] = json.load(answer)["checks"]["damage"]
        except urllib.error.HTTPError as error:
            found[number] = error.read().decode()
    return json.dumps(found, indent=1)


def await_healed(cluster):
    """Waits until all replicas are in sync, and each broker has found nothing that is damaged."""
    cluster.all_in_sync()
    for number, broker in cluster.brokers.items():
        look = lambda broker=broker: wholly_checked(broker)  # noqa: E731
        awaited(look, f"broker {number} has no damage", lambda: damage_of(cluster))
    cluster.all_in_sync()


def play(cluster, load, faults):
    """Lets the faults happen, each once the clients have come further; yields a sentence for each."""
    for number, fault in enumerate(faults):
        load.reader.await_more(EVENTS, COPIES, lambda: damage_of(cluster))
        if fault.is_damage:
            await_healed(cluster)
        else:
            cluster.all_in_sync()
        yield f"fault {number}, {happen(cluster, fault)}"


@contextlib.contextmanager
def told_if_it_fails(cluster, folder, told):
    """Adds to an error what has happened, and writes the logs of the brokers to files."""
    try:
        yield
    except BaseException as error:
        error.add_note("\n".join(told))
        raise
    finally:
        for number, broker in cluster.brokers.items():
            (folder / f"{number}.log").write_text(broker.read_log())


@pytest.mark.timeout(3 * 3600)
@pytest.mark.broker_errors(r"segments\.damage_search: ", r"recovery\.loading: ")
@pytest.mark.soak(rounds=20, soak_rounds=200)
def test_nothing_is_lost_and_all_is_whole_again(zookeeper, tmp_path, rounds, record_property):
    seed = int(os.environ.get("MILLRACE_CHAOS_SEED") or random.randrange(10**6))
    faults, told = list(islice(drawn(seed, KINDS_OF_DAMAGE), len(list(rounds)))), [f"MILLRACE_CHAOS_SEED={seed}"]
    with broker_cluster(tmp_path, zookeeper.address, properties=PROPERTIES) as cluster:
        create_topics(cluster.bootstrap, len(cluster.brokers))
        load = Load(cluster.bootstrap, tmp_path)
        load.start()
        with told_if_it_fails(cluster, tmp_path, told), contextlib.closing(load):
            told.extend(play(cluster, load, faults))
            load.finish()
            await_healed(cluster)
            findings = judged(cluster, load)
            assert not findings, "\n".join(findings[:SHOWN])
    counted = Counter(fault.kind for fault in faults)
    figures = counted | load.sender.outcomes | load.reader.counts | load.reader.errors
    for name, count in sorted(figures.items()):
        record_property(name, count)
    record_property("seed", seed)


def judged(cluster, load):
    """Returns a sentence for each thing that is wrong, once the replicas have had the time to become equal."""
    folders = {number: broker.data_dir for number, broker in cluster.brokers.items()}
    differing = []

    def are_equal():
        differing[:] = replica_findings(folders)
        return not differing or None

    try:
        awaited(are_equal, "all replicas are equal")
    except AssertionError:
        logger.exception("they are not")
    return [*content_findings(*load.evidence()), *differing]
