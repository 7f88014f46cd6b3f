"""Copies one topic to another by Millrace's own clients, for ever and exactly once: `BOOTSTRAP NAME [COUNT]`.

It copies NAME-in to NAME-out, at most COUNT messages in a transaction.

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


def main(bootstrap, name, in_one=IN_ONE):
    with (
        Producer(broker_list=bootstrap, producer_type="async", transactional_id=name) as producer,
        Cluster(bootstrap) as cluster,
    ):
        producer.init_transactions()
        consumer = SimpleConsumer(cluster)
        places = [(f"{name}-in", index) for index in range(cluster.partition_count(f"{name}-in"))]
        offsets = committed(cluster, name, places)
        while True:
            copied = 0
            for place in places:
                messages = consumer.messages(*place, offsets[place], isolation=IsolationLevel.READ_COMMITTED)
                records = list(itertools.islice(messages, int(in_one)))
                copied += len(records)
                try:
                    copy(producer, name, place, records)
                except TransactionFailedError as error:
                    logger.warning("copied again from what was committed: %s", error)
                    offsets = committed(cluster, name, places)
                else:
                    offsets[place] = records[-1].offset + 1 if records else offsets[place]
            if not copied:
                time.sleep(PAUSE_S)


def committed(cluster, name, places):
    return {place: max(one.offset, 0) for place, one in Groups(cluster).offsets(name, places).items()}


def copy(producer, name, place, records):
    """Copies messages, and that they are copied."""
    if records:
        with producer.transaction():
            for one in records:
                producer.send(f"{name}-out", one.value, partition=place[1])
            producer.send_offsets_to_transaction({place: records[-1].offset + 1}, name)


main(*sys.argv[1:])
