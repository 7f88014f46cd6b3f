"""`millrace warehouse switch`: makes a table go on with the mirror of its topic (`warehouse.load.switch`)."""

from __future__ import annotations

from millrace_ops.cli.options import ClusterAccess, DryRun, Json, TableDirectory, TopicName
from millrace_ops.cli.output import print_json


def switch(
    directory: TableDirectory,
    topic: TopicName,
    *,
    access: ClusterAccess,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Make a table go on with another topic that has its records at the same offsets: a mirror that follows its topic.

    The table's newest records are compared with the topic's first. The next load reads what the table lacks from there.
    """
    from millrace.security.client_config import SecuritySource
    from millrace_pipelines.spark.brokers import TopicSource
    from millrace_pipelines.spark.choices import Isolation
    from millrace_pipelines.warehouse.load.switch import switch_topic

    source = TopicSource(access.bootstrap, topic, Isolation.READ_COMMITTED, SecuritySource(access.client_config))
    done = switch_topic(directory, source, dry_run=dry_run)
    if as_json:
        print_json({"table": directory, "dry_run": dry_run, **done._asdict()})
        return
    goes_on = "would go on" if dry_run else "goes on"
    print(f"{directory} {goes_on} with topic {done.topic}, of which {done.compared} records were compared")
    for partition, offset in done.next_offsets.items():
        print(f"partition {partition}: the next load reads from offset {offset}")
