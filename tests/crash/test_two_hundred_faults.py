"""Three brokers, two of which must be in sync, through 200 faults, of which a third damages what is on their disks.

Brokers are killed, stopped and paused; bits of any file of a log, or of the checkpoints, are flipped, files are cut off
or deleted, of running brokers and of stopped ones; and whole disks are wiped. Meanwhile clients send with acks=all,
copy in transactions, some of which are aborted, and read committed records (`chaos/chaos_load.py`). Nothing that was
acknowledged is lost, nothing of an aborted transaction is read, no transaction is torn, the group's offsets agree with
the copies, all replicas are equal byte for byte, and no range is left damaged.

A record survives where a sound copy does. So damage is done to one broker at a time: the next one comes once the
scrubbers of all brokers have been over all files and found nothing, and all replicas are in sync. Kills and pauses come
while damage is not healed yet, to any broker, but each once all are in sync, since the last one in sync may be the
damaged one.

`MILLRACE_CHAOS_SEED=4711` draws the faults of a seed again; each run prints its own.
"""

import contextlib
import json
import logging
import os
import random
import time
import urllib.error
import urllib.request
from collections import Counter
from functools import partial
from itertools import islice

import pytest
from chaos_load import Load, create_topics
from content_judge import content_findings
from fault_injection import happen
from fault_plan import DAMAGE, WIPED, drawn
from replica_judge import replica_findings

from millrace_support.admin_requests import change_request, read_request
from millrace_support.broker_clusters import broker_cluster
from millrace_support.broker_properties import EAGER_SCRUBBER, KEEPS_ALL
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
    "log.segment.delete.delay.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0.1",
    **EAGER_SCRUBBER,
    **KEEPS_ALL,
}
EVENTS, COPIES = 20, 10  # that are read between two faults
SHOWN = 20
UNAVAILABLE = 503
KINDS_OF_DAMAGE = (*DAMAGE, WIPED)


def asked(request):
    """Returns the JSON that a broker answers, an error's too; None while it opens its logs or its endpoint."""
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return None if error.code == UNAVAILABLE else json.load(error)
    except urllib.error.URLError:
        return None


def damage_of(cluster):
    """Returns what each broker says of its scrubber and of damage, for the message of a test that fails."""
    found = {number: asked(read_request(each, "maintenance/scrub")) for number, each in cluster.brokers.items()}
    return json.dumps(found, indent=1)


def is_whole(broker, since_ms):
    """Returns True if the scrubber has found nothing in a round since then, and nothing is damaged; else None."""
    progress = asked(read_request(broker, "maintenance/scrub"))
    if progress is None or "directories" not in progress:
        return None
    [scrub] = progress["directories"]
    if scrub["damage"] or scrub["last_findings"] or (scrub["last_started_ms"] or 0) < since_ms:
        return None
    checked = asked(change_request(broker, "maintenance/verify"))
    is_clean = checked is not None and not any(report["findings"] for report in checked["partitions"])
    return is_clean or None


def await_healed(cluster):
    """Waits until each broker has checked all that is on its disk and found nothing, and all replicas are in sync."""
    cluster.all_in_sync()
    since_ms = time.time_ns() // 10**6
    for number, broker in cluster.brokers.items():
        awaited(partial(is_whole, broker, since_ms), f"broker {number} is whole", partial(damage_of, cluster))
    cluster.all_in_sync()


def play(cluster, load, faults):
    """Lets the faults happen, each once the clients have come further; yields a sentence for each."""
    for number, fault in enumerate(faults):
        load.reader.await_more(EVENTS, COPIES, partial(damage_of, cluster))
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
@pytest.mark.broker_errors(r"segments\.damage_search: ", r"recovery\.loading: ", r"log_cleaner: .* compaction failed")
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
