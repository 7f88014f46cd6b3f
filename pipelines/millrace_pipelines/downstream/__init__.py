"""Jobs that groups feed: a function over micro-batches of a topic, its output a Delta table.

    workers      several processes that share the topic's partitions, until the output has all that was there
    __main__     one of these processes
    consume      one member of the group: takes records, has the output commit them, lets the group's offsets follow
    output       the Delta table: what a batch changes, and the offsets, in one commit
    job          what a job is: its function, its topic, its columns, its bounds

docs/downstream.md shows how to write one. The output's own offsets decide what is processed next, and those of the
group in ZooKeeper only follow: a worker that was replaced, killed or stopped anywhere processes no record twice.
"""

from millrace_pipelines.downstream.consume import RunOptions, consume
from millrace_pipelines.downstream.job import Form, MicroBatchJob, micro_batch_job
from millrace_pipelines.downstream.output import output_rows
from millrace_pipelines.downstream.workers import run_workers

__all__ = ["Form", "MicroBatchJob", "RunOptions", "consume", "micro_batch_job", "output_rows", "run_workers"]
