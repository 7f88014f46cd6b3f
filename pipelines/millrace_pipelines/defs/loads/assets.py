"""The warehouse table of a topic: each run is one exactly-once load, in another process."""

from collections.abc import Iterator

import dagster as dg

from millrace_pipelines.defs.loads.child_process import run_jobs
from millrace_pipelines.defs.loads.events import Event, asset_events
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.topics.assets import topic
from millrace_pipelines.defs.topics.partitions import topics_partitions
from millrace_pipelines.runs.jobs import LoadJob
from millrace_pipelines.warehouse.load.options import LoadOptions

SPARK_POOL = "spark"  # the instance limits it to one run: a Spark session takes all cores that it is given


@dg.asset(
    partitions_def=topics_partitions,
    deps=[topic],
    group_name="millrace",
    kinds={"spark", "deltalake"},
    pool=SPARK_POOL,
    output_required=False,
    description=(
        "A topic's records as a Delta table: the raw envelope, and typed columns where the topic declares a schema. "
        "A run loads what is new since the offsets in the table and commits rows and offsets at once; "
        "a run that finds nothing new commits nothing, and is an observation."
    ),
)
def warehouse_table(context: dg.AssetExecutionContext, millrace: MillraceResource) -> Iterator[Event]:
    """Loads one topic up to the end offsets that it has when the load begins."""
    name = context.partition_key
    options = LoadOptions(
        topic=name,
        table=millrace.table_dir(name),
        bootstrap=millrace.bootstrap,
        schema=millrace.schema_file(name),
        run_id=context.run.run_id,
    )
    job = LoadJob(key=context.asset_key.to_user_string(), options=options)
    outcomes = run_jobs(context, [job], master=millrace.master, spark_settings=millrace.spark)
    yield from asset_events(context, outcomes)
