"""Whether a table's ledger can be that of its topic: it is the same topic, and its logs reach as far as the table."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import UnknownTopicError
from millrace.security.client_config import SecuritySource
from millrace_pipelines.spark.brokers import TopicSource, check_ends, describe_topic, log_offsets
from millrace_pipelines.spark.choices import Isolation
from millrace_pipelines.warehouse.ledger.ledger import Ledger


def topic_findings(ledger: Ledger, bootstrap: str, client_config: str | None) -> Iterator[str]:
    """Yields why the ledger can't be that of the topic; raises ClientError where the cluster can't be asked."""
    source = TopicSource(bootstrap, ledger.topic, Isolation.READ_UNCOMMITTED, SecuritySource(client_config))
    try:
        description = describe_topic(source)
    except UnknownTopicError:
        yield f"topic {ledger.topic} does not exist"
        return
    if description.topic_id != ledger.topic_id:
        yield (
            f"topic {ledger.topic} was deleted and created again: its id is {description.topic_id}, "
            f"the table's {ledger.topic_id}"
        )
        return
    reached = {partition: entry.next_offset for partition, entry in ledger.partitions.items()}
    logs = check_ends(source, log_offsets(source, description.partitions), reached)
    for partition, entry in ledger.partitions.items():
        if partition not in logs:
            yield f"partition {partition}: in the table, but not in the topic"
        elif entry.next_offset > logs[partition].log_end:
            yield (
                f"partition {partition}: the table has offsets up to {entry.next_offset - 1}, "
                f"the topic's log ends at {logs[partition].log_end}"
            )
