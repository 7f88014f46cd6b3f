"""Spark's daemon of Python workers, with the modules of loads imported before it forks the first worker.

Spark starts it by the name that tests/conftest.py hands to each JVM. Its own daemon leaves the imports to each worker,
and there they take longer than the task of a test.
"""

import gc
import importlib
import sys

from pyspark.daemon import manager

import millrace_pipelines.spark.source
import millrace_pipelines.warehouse.load.load  # noqa: F401

if __name__ == "__main__":
    importlib.import_module(sys.argv[1])
    gc.freeze()  # workers collect after each task
    manager()
