"""What a load finds before it changes anything: the topic, its logs, and the tables.

    declared schema ─► topic ─► tables, and with them the ledger ─► ends of the logs

The ledger is read before the logs' ends: so if a log ends below the ledger, no load has moved the ledger meanwhile, but
the log was truncated, or a former leader has answered. All plans are made from this alone, those of loads and reloads
and those of their dry runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from millrace.fs import FileSystem
from millrace_pipelines.spark.brokers import LogOffsets, TopicDescription, describe_topic, log_offsets
from millrace_pipelines.warehouse.delta.protocol import Access
from millrace_pipelines.warehouse.delta.store import store_at
from millrace_pipelines.warehouse.delta.table import Table, load_if_there
from millrace_pipelines.warehouse.ledger.ledger import Ledger
from millrace_pipelines.warehouse.ledger.skipped import skipped_location
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.payload.schema import declared_schema
from millrace_pipelines.warehouse.tables.open import FoundTables, LoadTable, look_at_tables


class LoadInputs(NamedTuple):
    """What a plan is made from: the topic, where its logs start and end, and the tables.

    The description has the epochs of the leaders that gave the offsets.
    """

    description: TopicDescription
    log: Mapping[int, LogOffsets]
    tables: FoundTables


def look(
    options: LoadOptions, fs: FileSystem, *, load: LoadTable = Table.load, access: Access = Access.APPEND
) -> LoadInputs:
    """Looks at what a load reads and writes.

    Args:
        options: What is to be loaded where.
        fs: The disk.
        load: How an existing table is loaded; by default nothing is changed by it.
        access: What is to be done with the tables.

    Raises:
        UnknownTopicError, ClientError: The cluster has no such topic, or can't be asked.
        WarehouseError: The tables can't be used (`look_at_tables` names the errors).
    """
    location = store_at(options.table, fs).location
    schema = declared_schema(options.schema, options.columns)
    description = describe_topic(options.source)
    tables = look_at_tables(
        location, options.topic, description.topic_id, schema, fs,
        mode=options.mode, compression=options.compression, load=load, access=access,
    )  # fmt: skip
    if (skipped := load_if_there(skipped_location(location), fs)) is not None:
        skipped.check_access(Access.APPEND)
    log = log_offsets(options.source, description.partitions)
    return LoadInputs(description._replace(leader_epochs=_planned_epochs(log, tables.ledger)), log, tables)


def _planned_epochs(log: Mapping[int, LogOffsets], ledger: Ledger) -> dict[int, int]:
    """Returns the epochs of the leaders that gave the offsets; none where the leader lacks what the table has."""
    return {
        partition: offsets.leader_epoch
        for partition, offsets in log.items()
        if (ledger.next_offset(partition) or 0) <= offsets.log_end
    }
