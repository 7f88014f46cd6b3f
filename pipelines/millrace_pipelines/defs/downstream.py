"""Assets out of downstream jobs: `micro_batch_asset(job)` is an asset whose runs bring the job's output up to date.

A run takes what the topic has when it begins, or as much as its time allows; another run goes on from there. Its worker
processes share the topic's partitions. A failed run is tried again where that may help, and repeats no record. Each job
has a pool, so that neither its failures nor its length delay a load or another job.

Dagster evaluates when they are brought up to date in the sensor `default_automation_condition_sensor`, which runs in
the project of `millrace up`; in other projects it is stopped until it is started in the UI.
"""

# Without `from __future__ import annotations`: Dagster reads the annotations of steps and checks.

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import dagster as dg
from pydantic import Field

from millrace.client.answers import is_retriable
from millrace.errors import MillraceError
from millrace.security.client_config import VARIABLE as CLIENT_CONFIG
from millrace_pipelines.declaration.attributes import CLUSTER
from millrace_pipelines.declaration.cluster import ZOOKEEPER, default_group
from millrace_pipelines.defs.maintenance import report_table
from millrace_pipelines.defs.resources import named_by_environment
from millrace_pipelines.downstream import MicroBatchJob, RunOptions, run_workers
from millrace_pipelines.downstream.consume import DEFAULT_SESSION_TIMEOUT_MS
from millrace_pipelines.downstream.workers import Line, RunReport, records_in
from millrace_pipelines.warehouse.formats import table_below
from millrace_pipelines.warehouse.stores.options import declare_store_options

VARIABLES: Mapping[str, str] = {"zookeeper": ZOOKEEPER, "client_config": CLIENT_CONFIG}
"""The variables of fields that are empty."""
Condition = dg.AutomationCondition[dg.AssetKey | dg.AssetCheckKey]
POOL_PREFIX = "downstream/"
DEFAULT_MAX_SECONDS = 600.0


def groups_resource(cluster: str) -> str:
    """Returns the name of a cluster's `ConsumerGroupResource`."""
    return f"{cluster}_consumer_groups"


class ConsumerGroupResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # the value is the resource itself
    """Groups that ZooKeeper coordinates, and the folder in which the jobs that they feed keep their outputs.

    Attributes:
        zookeeper: `HOST:PORT[,HOST:PORT…][/chroot]`; "" for that of the environment.
        bootstrap: `HOST:PORT` of a broker.
        client_config: The file with Kafka's client properties of security, or env:NAME; "" for that of the environment.
        output_dir: The folder with the table of each job, `<output_dir>/<job>`.
        stores: Options of stores by the beginnings of addresses; a secret is written env:NAME.
        session_timeout_ms: How long a worker may be silent before its partitions go to the others.
    """

    zookeeper: str
    bootstrap: str
    output_dir: str
    client_config: str = ""
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    stores: dict[str, dict[str, str]] = Field(default={})

    def create_resource(self, context: dg.InitResourceContext) -> Self:  # noqa: ARG002  Dagster's interface
        """Returns the resource with empty fields filled from the environment; the process gets the stores' options.

        Raises:
            SetupError: An option of a store names a variable that is not set.
        """
        declare_store_options(self.stores)
        return self.model_copy(update=named_by_environment(self, VARIABLES))

    def location(self, job: MicroBatchJob) -> str:
        """Returns the address of a job's output table."""
        return table_below(self.output_dir, job.name)

    def options(self, job: MicroBatchJob, *, max_seconds: float, accept_lost_offsets: bool) -> RunOptions:
        """Returns the options of a run of the job; its consumer group has the job's name."""
        return RunOptions(
            zookeeper=self.zookeeper,
            bootstrap=self.bootstrap,
            client_config=self.client_config or None,
            output=self.location(job),
            max_seconds=max_seconds,
            accept_lost_offsets=accept_lost_offsets,
            session_timeout_ms=self.session_timeout_ms,
        )


def eager_past_blocking_checks() -> Condition:
    """Returns the condition of an asset that runs after each update of a dependency whose blocking checks have passed.

    It differs from Dagster's `eager` in two ways:

    - `eager` looks at no checks of other runs. Here a dependency whose blocking checks have failed, or not run since
      its update, holds the asset back until they pass.
    - `eager` forgets an update that comes while the asset's run is under way, which that run may not have seen. Here
      only a request after the update settles it, so another run follows.
    """
    request = dg.AutomationCondition.newly_requested() & ~dg.AutomationCondition.any_deps_updated()
    handled = request | dg.AutomationCondition.initial_evaluation()
    eager = dg.AutomationCondition.eager().replace("handled", handled.with_label("handled"))
    past_checks = dg.AutomationCondition.all_deps_blocking_checks_passed()
    return (eager & past_checks).with_label("eager, past blocking checks")


EAGER = eager_past_blocking_checks()


class MicroBatchConfig(dg.Config):
    """The configuration of one run of a downstream job, as the Launchpad offers it."""

    workers: int | None = Field(default=None, description="The number of processes; by default the asset's.", ge=1)
    max_seconds: float = Field(
        default=DEFAULT_MAX_SECONDS, description="When the run ends although there is more.", gt=0
    )
    accept_lost_offsets: bool = Field(
        default=False,
        description="Whether the job goes on behind offsets that retention deleted before it had processed them, or "
        "that the log has lost, or holds in a damaged batch.",
    )


def micro_batch_asset(
    job: MicroBatchJob,
    *,
    cluster: str = CLUSTER,
    workers: int = 1,
    deps: Iterable[dg.AssetKey | dg.AssetSpec | dg.AssetDep | dg.AssetsDefinition | str] | None = None,
    key_prefix: Sequence[str] | str | None = None,
    group_name: str | None = None,
    automation_condition: Condition | None = EAGER,
    description: str | None = None,
) -> dg.AssetsDefinition:
    """Returns an asset for a job; the cluster's component gives it the resource that it needs.

    Args:
        job: The job, an attribute of a module that other processes can import.
        cluster: The name of the cluster, as it is declared.
        workers: The number of processes that share the topic's partitions; the Launchpad may give another.
        deps: The assets that it depends on; by default the topic's.
        key_prefix: What its key begins with; the job's name ends it.
        group_name: Its group in the asset graph; by default that of the topic.
        automation_condition: When it is materialized without a person or a schedule; by default whenever an asset that
            it depends on is updated and has passed its blocking checks. None for never.
        description: What it is; by default the docstring of the job's function.
    """

    @dg.asset(
        name=job.name,
        key_prefix=key_prefix,
        deps=[dg.AssetKey([cluster, "topic", job.topic])] if deps is None else list(deps),
        group_name=group_name or default_group(job.topic),
        required_resource_keys={groups_resource(cluster)},
        kinds={"zookeeper", "parquet"},
        pool=POOL_PREFIX + job.name,
        retry_policy=dg.RetryPolicy(max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL),
        automation_condition=automation_condition,
        description=description or job.process.__doc__,
    )
    def up_to_date(context: dg.AssetExecutionContext, config: MicroBatchConfig) -> dg.MaterializeResult[None]:
        """Processes the records that the job's topic has when the run begins, and that the output lacks."""
        consumer_groups: ConsumerGroupResource = getattr(context.resources, groups_resource(cluster))

        def follow(number: int, line: Line) -> None:
            if "error" in line:
                context.log.warning("worker %d: %s", number, line["error"])
            elif "ranges" in line:
                context.log.info("worker %d: %d records, version %d", number, records_in(line), line["version"])

        options = consumer_groups.options(
            job, max_seconds=config.max_seconds, accept_lost_offsets=config.accept_lost_offsets
        )
        try:
            report = run_workers(job, options, workers=config.workers or workers, on_line=follow)
        except MillraceError as error:
            raise dg.Failure(str(error), allow_retries=is_retriable(error)) from error
        return dg.MaterializeResult(metadata=shown_report(options.output, report))

    return up_to_date


def shown_report(output: str, report: RunReport) -> dict[str, dg.TableMetadataValue | dg.PathMetadataValue | int | str]:
    """Returns a run's report as Dagster's metadata."""
    offsets = [
        {"partition": part.partition, "from_offset": part.from_offset, "until_offset": part.until_offset}
        for part in report.offsets
    ]
    return {
        "records": report.records,
        "batches": report.batches,
        "seconds": round(report.seconds),
        "lag": report.lag,
        "workers": report.workers,
        "failed workers": len(report.failures),
        "offsets": report_table(offsets) if offsets else "nothing new",
        "table": dg.MetadataValue.path(output),
    }
