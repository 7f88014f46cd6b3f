"""Sends one batch and waits until it is acknowledged.

A batch is sent again only where it surely was not appended: no connection, or an answer that says so. After
AnswerLostError it may lie in the log or not; to send it again, and perhaps have it twice, is the caller's choice.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.records.batch import NO_OFFSET, NO_TIMESTAMP
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.messages import PRODUCE

ACKS_NONE = 0
ACKS_ALL = -1


class SyncProducer:
    """Appends batches of records to partitions' leaders, one request at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def send(
        self,
        topic: str,
        partition: int,
        records: Sequence[NewRecord],
        *,
        codec: Codec = Codec.NONE,
        acks: int = ACKS_ALL,
    ) -> int:
        """Appends the records as one batch and returns the offset of the first; -1 with acks=0, without waiting.

        A record without a timestamp gets the current time.
        A topic that does not exist is created, if the cluster is set up to. Raises RecordTooLargeError for a batch
        above the topic's `max.message.bytes`, UnknownTopicError, BrokerError, BrokerUnreachableError.
        """
        now_ms = self._cluster.clock.now_ms()
        stamped = [one._replace(timestamp_ms=now_ms) if one.timestamp_ms == NO_TIMESTAMP else one for one in records]
        batch = encode_batch(stamped, codec=codec)
        ask = PRODUCE.ask(
            {
                "transactional_id": None,
                "acks": acks,
                "timeout": self._cluster.timeout_ms,
                "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
            }
        )

        def action(connection: Connection) -> int:
            if acks == ACKS_NONE:
                connection.send(*ask)
                return NO_OFFSET
            answer = connection.request(*ask).responses[0].partition_responses[0]
            check(answer.error_code, f"produce to {topic}-{partition}", answer.error_message)
            return int(answer.base_offset)

        return self._cluster.on_leader(topic, partition, action, create_missing=True, repeatable=False)
