"""What an executor answers that can't write into the table's folder, and what is told of Spark's own reports."""

import socket

import pytest

from millrace.errors import CorruptRecordError
from millrace.fs import OsFileSystem
from millrace_pipelines.spark.collecting import cause_of
from millrace_pipelines.spark.read import NO_RECORDS, ReadBlock
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load.jobs import attempted
from millrace_pipelines.warehouse.load.task import LoadSpec, TaskResult
from millrace_pipelines.warehouse.stores.leases import lease

FS = OsFileSystem()
SPAN = OffsetRange(0, 0, 5)


def spec(folder):
    return LoadSpec(load_id="load", topic="events", table=str(folder), dead_letters_table=f"{folder}__d", payload=None)


def nothing(*_):
    yield ReadBlock(NO_RECORDS, control=5)


def raising(error):
    def read(*_):
        raise error
        yield

    return read


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "table"
    made.mkdir()
    with lease(str(made), "load", FS):
        yield made


def answer(folder, read=nothing):
    return TaskResult.from_json(attempted(SPAN, spec(folder), read, 0, FS).to_json())


def test_an_executor_that_sees_the_folder_loads(folder):
    found = answer(folder)
    assert (found.control, found.refusal, found.damage) == (5, "", "")


@pytest.mark.parametrize("other", ["absent", "of the same name"])
def test_an_executor_with_another_folder_says_so_and_writes_nothing(folder, tmp_path, other):
    elsewhere = tmp_path / other
    if other != "absent":
        (elsewhere / "_running").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    found = answer(elsewhere, raising(AssertionError("it reads nothing")))
    assert found.refusal == f"{socket.gethostname()} does not see {elsewhere}"
    assert sorted(tmp_path.rglob("*")) == before


def test_an_executor_that_may_not_write_says_so(folder):
    found = answer(folder, raising(PermissionError(13, "Permission denied", str(folder))))
    assert found.refusal == f"{socket.gethostname()} may not write: [Errno 13] Permission denied: '{folder}'"


def test_a_damaged_log_is_another_answer(folder):
    found = answer(folder, raising(CorruptRecordError("the batch at 3")))
    assert (found.refusal, found.damage) == ("", "the batch at 3")


PYTHON = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/srv/jobs.py", line 7, in attempt
    write(rows)
    ^^^^^^^^^^^
{error}
"""
IN_JAVA = """An error occurred while calling o137.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 3 times, most recent \
failure: Lost task 0.2 in stage 3.0 (TID 11) (10.0.0.7 executor 4): {error}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.applyOrElse(PythonRunner.scala:711)
\tat java.base/java.lang.Thread.run(Thread.java:840)
{causes}
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$3(DAGScheduler.scala:2935)
"""
CRASHED = "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): \n\n\t... 1 more"
CHAINED = """KeyError: 'inner'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/srv/jobs.py", line 9, in attempt
ValueError: outer: said"""
LOST = "ExecutorLostFailure (executor 4 exited) Reason: Remote RPC client disassociated."
ABORTED = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 3 times, most recent failure: Lost task 0.2 in "
    "stage 3.0 (TID 11) (10.0.0.7 executor 4)"
)
REPORTS = [
    (PYTHON.format(error="OSError: /srv/t: Cannot create directory"), "OSError: /srv/t: Cannot create directory"),
    (
        PYTHON.format(error="pyarrow.lib.ArrowInvalid: Column 1 named x\nexpected length 3 but got length 4"),
        "pyarrow.lib.ArrowInvalid: Column 1 named x expected length 3 but got length 4",
    ),
    (PYTHON.format(error=CHAINED), "ValueError: outer: said"),
    (PYTHON.format(error="AssertionError"), "AssertionError"),
    (PYTHON.format(error="millrace.errors.Odd: said\n SQLSTATE: 38000"), "millrace.errors.Odd: said"),
    (
        IN_JAVA.format(
            error=PYTHON.format(error="KeyError: 'x'"), causes="Caused by: java.io.EOFException\n\t... 21 more"
        ),
        "KeyError: 'x'",
    ),
    (
        IN_JAVA.format(error="", causes=f"{CRASHED}\nCaused by: java.io.EOFException"),
        "Python worker exited unexpectedly (crashed)",
    ),
    (IN_JAVA.format(error=LOST, causes=""), f"{ABORTED}: {LOST}"),
    ("Failed to find data source: kafka. Please deploy it.", "Failed to find data source: kafka. Please deploy it."),
    ("", ""),
]


@pytest.mark.parametrize(("report", "cause"), REPORTS)
def test_the_task_s_own_error_is_told_whole_and_alone(report, cause):
    assert cause_of(report) == cause
