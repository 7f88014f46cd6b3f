"""Loads of a broker's topics as steps of Dagster, and programs that change what the process of a load does.

Annotations are not postponed in this module, because Dagster reads those of a step.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import dagster as dg

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace_pipelines.defs.load_process import Event, asset_events, run_jobs
from millrace_pipelines.runs.jobs import LoadJob
from millrace_pipelines.warehouse.load.options import LoadOptions

MASTER = "local[1,1]"
SETTINGS = {"spark.hadoop.some.secret": "hush"}
LOADS = "loads"

CHANGED_CHILD = """
import os, signal, sys, time
from pathlib import Path
from pyspark import SparkContext
from millrace_pipelines.runs import child
from millrace_pipelines.warehouse.load import jobs, loader

MARKER = Path({marker!r})

def once():
    '''Returns whether this is the first call of all processes that have this marker.'''
    if MARKER.exists():
        return False
    whole = MARKER.with_suffix(".new")
    whole.write_text(str(os.getpid()))
    whole.rename(MARKER)
    return True

def at(point):
    if point == {point!r} and once():
        act()

child.PipesListener.reached = lambda self, step: at(step)
run_tasks = jobs.run_tasks
def run_tasks_at(*given):
    at("tasks begin")
    return run_tasks(*given)
jobs.run_tasks = run_tasks_at
"""


class Accepted(dg.Config):
    """The run configuration of loads: the losses and changes that they accept."""

    accept_lost_offsets: bool = False
    accept_recreated_topic: bool = False
    accept_truncated_log: bool = False
    accept_keyless_records: bool = False


def changed_child(marker: Path, program: str, *, point: str = "") -> str:
    """Returns the code of the child process of loads, changed by a program.

    Args:
        marker: A file that the first call of `once` makes, with the process's id.
        program: Python that may use MARKER, `loader` and `once`; where `point` is given, it defines `act`, which the
            first process at this point calls.
        point: A step of a load, or `tasks begin`.
    """
    return CHANGED_CHILD.format(marker=str(marker), point=point) + program + "\nchild.main()\n"


class Run:
    """What Dagster keeps of a run of one step.

    Attributes:
        topics: The topics whose tables it was to load.
        run_id: Its id.
        success: Whether it succeeded.
        loaded: The topics whose tables it materialized.
        without_news: The topics of which it observed that they had nothing new.
        attempts: How often the step was begun.
        sentence: Why the step failed in the end; None where it did not, or was interrupted.
        shown: The metadata of that failure.
        error: What is shown of it, with its class and its stack.
        retried: The error of each attempt that was followed by another one.
    """

    def __init__(self, topics: Sequence[str], result: dg.ExecuteInProcessResult) -> None:
        self.topics = topics
        self.run_id, self.success = result.run_id, result.success
        self.loaded = [one.asset_key.path[-1] for one in result.asset_materializations_for_node(LOADS)]
        self.without_news = [one.asset_key.path[-1] for one in result.asset_observations_for_node(LOADS)]
        kinds = [event.event_type_value for event in result.all_events]
        self.attempts = kinds.count("STEP_START") + kinds.count("STEP_RESTARTED")
        failures = [event.step_failure_data for event in result.all_events if event.is_step_failure]
        self.error = failures[0].error if failures else None
        words = failures[0].user_failure_data if failures else None
        self.sentence = words.description if words else None
        self.shown = {label: value.value for label, value in words.metadata.items()} if words else {}
        retries = [event.step_retry_data for event in result.all_events if event.is_step_up_for_retry]
        self.retried = [data.error for data in retries]


class DagsterLoads:
    """A broker's topics and their tables, loaded by steps of Dagster.

    Args:
        bootstrap: The broker's address.
        directory: Where the tables are.
    """

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self._directory = directory

    def table(self, topic: str) -> str:
        """Returns where a topic's table is."""
        return str(self._directory / topic)

    def create(self, *topics: str) -> None:
        """Creates topics of one partition."""
        with Cluster(self.bootstrap) as cluster:
            for topic in topics:
                Admin(cluster).create_topic(topic, 1)

    def send(self, topic: str, *values: bytes, key: bytes | None = b"k") -> None:
        """Sends records to a topic, a batch for each."""
        with Cluster(self.bootstrap) as cluster:
            for value in values:
                SyncProducer(cluster).send(topic, 0, [NewRecord(value, key)])

    def load(
        self, *topics: str, how: Mapping[str, Mapping[str, object]] | None = None, accept: Sequence[str] = ()
    ) -> Run:
        """Runs one step that loads the tables of topics.

        Args:
            topics: The topics.
            how: By topic, options of its load that differ from the usual ones.
            accept: The names of options that the run configuration sets.
        """
        specs = [dg.AssetSpec(["table", topic], deps=[["topic", topic]], skippable=True) for topic in topics]

        @dg.multi_asset(specs=specs, name=LOADS)
        def loads(context: dg.AssetExecutionContext, config: Accepted) -> Iterator[Event]:
            chosen = config.model_dump() | {"run_id": context.run.run_id}
            jobs = [
                LoadJob(key=f"table/{topic}", options=self._options(topic, **{**chosen, **(how or {}).get(topic, {})}))
                for topic in topics
            ]
            yield from asset_events(context, run_jobs(context, jobs, master=MASTER, spark_settings=SETTINGS))

        config = {"ops": {LOADS: {"config": dict.fromkeys(accept, True)}}}
        return Run(topics, dg.materialize([loads], run_config=config, raise_on_error=False))

    def _options(self, topic: str, **options: object) -> LoadOptions:
        usual = {"topic": topic, "table": self.table(topic), "bootstrap": self.bootstrap}
        return LoadOptions(**(usual | options))  # type: ignore[arg-type]  # the caller knows the fields
