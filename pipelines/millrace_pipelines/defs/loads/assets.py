"""The warehouse table of a topic: each run is one exactly-once load, in another process."""

import sys
from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

import dagster as dg

from millrace.fs import OsFileSystem
from millrace_pipelines.defs.maintenance import label, report_table
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.tables.metadata import loaded_metadata
from millrace_pipelines.defs.topics.assets import topic
from millrace_pipelines.defs.topics.partitions import topics_partitions

Shown = TypeVar("Shown")
SPARK_POOL = "spark"  # the instance limits it to one run: a Spark session takes all cores that it is given


@dg.asset(
    partitions_def=topics_partitions,
    deps=[topic],
    group_name="millrace",
    kinds={"spark", "deltalake"},
    pool=SPARK_POOL,
    retry_policy=dg.RetryPolicy(max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL),
    description=(
        "A topic's records as a Delta table: the raw envelope, and typed columns where the topic declares a schema. "
        "A run loads what is new since the offsets in the table and commits rows and offsets at once; "
        "a run that finds nothing new commits nothing."
    ),
)
def warehouse_table(
    context: dg.AssetExecutionContext, millrace: MillraceResource, pipes: dg.PipesSubprocessClient
) -> dg.MaterializeResult[None]:
    """Loads one topic up to the end offsets that it has when the load begins."""
    name = context.partition_key
    invocation = pipes.run(
        context=context,
        command=[sys.executable, "-m", "millrace_pipelines.warehouse.load.pipes_load"],
        extras={
            "topic": name,
            "table": millrace.table_dir(name),
            "bootstrap": millrace.bootstrap,
            "schema": millrace.schema_file(name),
            "master": millrace.master,
        },
    )
    reported = invocation.get_materialize_result().metadata or {}
    shown = shown_metadata(reported)
    version = reported.get("table_version")
    if isinstance(version, dg.IntMetadataValue) and version.value is not None:
        shown |= loaded_metadata(millrace.table_dir(name), version.value, OsFileSystem(), topic=topic.key)
    return dg.MaterializeResult(metadata=shown)


def shown_metadata(reported: Mapping[str, Shown]) -> dict[str, Shown | dg.TableMetadataValue | str]:
    """Returns what the load reported, with its lists of offset ranges as tables."""
    return {
        label(name): _table(value.data) if isinstance(value, dg.JsonMetadataValue) else value
        for name, value in reported.items()
    }


def _table(ranges: object) -> dg.TableMetadataValue | str:
    return report_table(cast("Sequence[Mapping[str, object]]", ranges)) if ranges else "none"
