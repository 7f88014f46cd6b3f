"""A downstream job that runs again and again beside a history, as members of a group that ZooKeeper coordinates.

Each of two members runs until the output has all records that the topic had when the run began, and leaves the group.
So the partitions change owners all the time, and in the end the output has each record once.
"""

import pyarrow as pa
import pyarrow.dataset as ds
from again_and_again import AgainAndAgain

from millrace.fs import OsFileSystem
from millrace_pipelines.downstream import Form, RunOptions, micro_batch_job
from millrace_pipelines.downstream.consume import consume
from millrace_pipelines.warehouse.delta.table import Table

MAX_SECONDS = 60.0
SESSION_TIMEOUT_MS = 2_000
SCHEMA = pa.schema([pa.field("partition", pa.string()), pa.field("offset", pa.int64()), pa.field("value", pa.int64())])


@micro_batch_job(topic="events", schema=SCHEMA, form=Form.APPEND)
def listed_events(_, messages):
    """Returns a row for each message."""
    rows = [(f"{one.topic}-{one.partition}", one.offset, int(one.value)) for one in messages]
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)


class JobBeside(AgainAndAgain):
    """One member of the job's group; several of them share an output."""

    def __init__(self, cluster, output):
        super().__init__("runs of a job")
        self.options = RunOptions(
            zookeeper=cluster.zookeeper, bootstrap=cluster.bootstrap, output=str(output), max_seconds=MAX_SECONDS,
            session_timeout_ms=SESSION_TIMEOUT_MS,
        )  # fmt: skip

    def do_once(self):
        is_complete = consume(listed_events, self.options, self.committed)
        self.ends["runs of a job" if is_complete else "runs of a job that ran out of time"] += 1
        return is_complete or None

    def committed(self, committed):
        self.ends["commits of a job"] += committed.version is not None

    def rows(self):
        """Returns (TOPIC-PARTITION, offset, value) of each row."""
        files = Table.load(self.options.output, OsFileSystem()).files()
        columns = ds.dataset(files).to_table(columns=SCHEMA.names).to_pydict()
        return zip(*columns.values(), strict=True)
