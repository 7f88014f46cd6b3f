"""Copies one topic to another by Millrace's own clients, for ever and exactly once: `BOOTSTRAP NAME`.

It copies NAME-in to NAME-out, at most ten messages in a transaction.

Where it takes over, no former instance can commit any more; so the offsets that it finds then are the last ones. A
transaction that fails is aborted, and copied again from there; any other error ends it, and another instance goes on.
"""

import itertools
import logging
import sys
import time

from millrace import Producer
from millrace.client import Cluster, Groups, SimpleConsumer
from millrace.client.producer import TransactionFailedError
from millrace.client.simple_consumer import IsolationLevel

logger = logging.getLogger(__name__)
IN_ONE = 10
PAUSE_S = 0.05


def main(bootstrap, name):
    source = f"{name}-in"
    with (
        Producer(broker_list=bootstrap, producer_type="async", transactional_id=name) as producer,
        Cluster(bootstrap) as cluster,
    ):
        producer.init_transactions()
        consumer = SimpleConsumer(cluster)
        partitions = range(cluster.partition_count(source))
        places = [(source, index) for index in partitions]
        while True:
            found = Groups(cluster).offsets(name, places)
            offsets = {place: max(one.offset, 0) for place, one in found.items()}
            try:
                while True:
                    copied = [copy(consumer, producer, name, offsets, index) for index in partitions]
                    if not any(copied):
                        time.sleep(PAUSE_S)
            except TransactionFailedError as error:
                logger.warning("copied again from what was committed: %s", error)


def copy(consumer, producer, name, offsets, index):
    """Copies some messages of a partition, if there are any; returns how many."""
    place = f"{name}-in", index
    messages = consumer.messages(*place, offsets[place], isolation=IsolationLevel.READ_COMMITTED)
    records = list(itertools.islice(messages, IN_ONE))
    if records:
        with producer.transaction():
            for one in records:
                producer.send(f"{name}-out", one.value, partition=index)
            producer.send_offsets_to_transaction({place: records[-1].offset + 1}, name)
        offsets[place] = records[-1].offset + 1
    return len(records)


main(*sys.argv[1:])
