"""What a report of a failed task says about its executor, as Spark words it."""

import pytest

from millrace_pipelines.spark.executors import what_executors_lack

IN_PYTHON = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/serializers.py", line 454, in loads
    return cloudpickle.loads(obj, encoding=encoding)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
{}
"""
IN_JAVA = """An error occurred while calling o2238.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 0.0 (TID 4) (127.0.0.1 executor 1): java.io.IOException: {}
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory
"""
MISMATCH = (
    "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
    "version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions."
)
REPORTS = {
    IN_PYTHON.format(
        "ModuleNotFoundError: No module named 'millrace_pipelines'"
    ): "has no millrace_pipelines, and needs",
    IN_PYTHON.format("ModuleNotFoundError: No module named 'millrace.newer'"): "another version of Millrace",
    IN_PYTHON.format("ModuleNotFoundError: No module named 'pyarrow'"): "lacks the package pyarrow, which",
    IN_PYTHON.format(
        "AttributeError: Can't get attribute 'Newer' on <module 'millrace_pipelines.warehouse.load.task' from '/x.py'>"
    ): "another version of Millrace than the driver, and can't read what it sends (Can't get attribute 'Newer' on ",
    IN_PYTHON.format(
        "ImportError: cannot import name 'Newer' from 'millrace.records' (/opt/x.py)"
    ): "another version of Millrace",
    IN_PYTHON.format(MISMATCH): "is 3.12, and the driver's is 3.11; their minor versions must be the same",
    IN_PYTHON.format(
        "millrace.errors.InvalidConfigError: /etc/kafka.properties: No such file or directory"
    ): "(/etc/kafka.properties: No such file or directory): put it there under the same path, or let the driver",
    IN_PYTHON.format(
        "millrace.errors.InvalidConfigError: /k.properties, line 2: ssl.key.location: /key.pem: Permission denied"
    ): "(/k.properties, line 2: ssl.key.location: /key.pem: Permission denied): put it there",
    IN_JAVA.format('Cannot run program "/opt/none/python": error=2, No such file'): "have no program /opt/none/python",
    IN_JAVA.format('Cannot run program "/root/python": error=13, Permission'): "may not run /root/python",
}


@pytest.mark.parametrize(("report", "told"), REPORTS.items())
def test_what_executors_lack_is_told_with_a_way_on(report, told):
    said = what_executors_lack(report)
    assert told in said
    assert "\n" not in said
    assert "spark.pyspark.python" in said or "docs/spark-clusters.md" in said


@pytest.mark.parametrize("error", [
    "AttributeError: 'NoneType' object has no attribute 'x'",
    "ValueError: ModuleNotFoundError: No module named 'millrace'",
    "OSError: [Errno 28] No space left on device",
])  # fmt: skip
def test_what_a_task_did_is_another_cause(error):
    assert what_executors_lack(IN_PYTHON.format(error)) is None
