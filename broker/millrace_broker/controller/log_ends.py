"""Asks brokers where the logs of partitions end that an operator wants to have led whatever it costs.

Of the replicas that may lack committed records, the one with the longest log lacks the fewest. The controller's thread
waits for no broker, so that it says whom to ask, and decides by what a worker was told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from millrace.addresses import Address
from millrace.client.connection import Connection
from millrace.client.replica_ends import read_replica_ends
from millrace.errors import MillraceError
from millrace_broker.controller.elections import LogEnd
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)

MAX_THREADS = 16
Connect = Callable[[Address], Connection]
Questions = Mapping[tuple[int, Address], Sequence[TopicPartition]]


def read_log_ends(connect: Connect, questions: Questions) -> dict[TopicPartition, dict[int, LogEnd]]:
    """Returns where the logs of partitions end, by partition and broker; one that does not answer is left out.

    `questions` has the partitions by the broker's id and address. Waits for the slowest broker: call it on a worker.
    """
    found: dict[TopicPartition, dict[int, LogEnd]] = {}
    if not questions:
        return found

    def ask(question: tuple[tuple[int, Address], Sequence[TopicPartition]]) -> None:
        (broker, address), keys = question
        try:
            connection = connect(address)
            try:
                ends = read_replica_ends(connection, keys)
            finally:
                connection.close()
        except MillraceError as error:
            logger.warning("broker %d does not say where its logs end, and is elected last: %s", broker, error)
            return
        for key in keys:
            if (end := ends.get(key)) is not None:
                found.setdefault(key, {})[broker] = end

    with ThreadPoolExecutor(min(len(questions), MAX_THREADS), thread_name_prefix="log-ends") as pool:
        list(pool.map(ask, questions.items()))
    return found
