"""Loads and reloads that kill their own process at a step.

    assert run_driver(load_and_die, options, "committed") == -signal.SIGKILL

The process is forked from a server that has imported the modules of a load. It attaches to the JVM and the Spark
context of this process, whose session must be running, so a death costs neither a JVM nor a context. What dies is the
Python of the driver, which does all that a load does besides its tasks; at each of the steps no task runs.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from typing import NoReturn, ParamSpec

from pyspark import SparkContext
from pyspark.sql import SparkSession

from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.load import load_topic, reload_topic
from millrace_pipelines.warehouse.load.options import LoadOptions, SilentListener, Step

P = ParamSpec("P")
TIMEOUT_S = 240.0
INHERITED = ("JAVA_HOME", "PYSPARK_PYTHON")


def load_and_die(options: LoadOptions, step: str) -> None:
    """Loads up to the step."""
    load_topic(options, listener=_Death(step))


def reload_and_die(options: LoadOptions, selection: Selection, step: str) -> None:
    """Reloads up to the step; "rewritten" is right before the commit of the rows, when all their files are written."""
    reload_topic(options, selection, listener=_Death(step))


def run_driver(operation: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> int | None:
    """Runs the operation in a process that drives this one's Spark; returns its exit code, negative for a signal."""
    forked = multiprocessing.get_context("forkserver")
    forked.set_forkserver_preload([__name__])
    process = forked.Process(target=_drive, args=(_environment(), operation, args, kwargs))
    process.start()
    process.join(TIMEOUT_S)
    if process.exitcode is None:
        process.kill()
        raise AssertionError(f"{operation.__name__} has not ended in {TIMEOUT_S:.0f} s")
    return process.exitcode


class _Death(SilentListener):
    def __init__(self, step: str) -> None:
        self._step = step

    def reached(self, step: Step) -> None:
        if step == self._step:
            _die()
        if (step, self._step) == (Step.DEAD_LETTERS_COMMITTED, "rewritten"):
            Table.commit = _die  # type: ignore[method-assign]


def _die(*_: object, **__: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL was survived")


def _environment() -> dict[str, str]:
    """Returns the variables by which another process attaches to this one's JVM."""
    gateway = SparkContext._gateway  # noqa: SLF001  PySpark keeps it nowhere else
    assert gateway is not None, "no session is running"
    parameters = gateway.java_parameters
    return {name: os.environ[name] for name in INHERITED} | {
        "PYSPARK_GATEWAY_PORT": str(parameters.port),
        "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
    }


def _drive(
    environment: Mapping[str, str],
    operation: Callable[..., None],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> None:
    os.environ.update(environment)
    SparkContext._ensure_initialized()  # noqa: SLF001  attaches to the JVM
    jvm = SparkContext._jvm  # noqa: SLF001
    assert jvm is not None
    running = jvm.org.apache.spark.SparkContext.getOrCreate()
    SparkSession(SparkContext(jsc=jvm.JavaSparkContext(running)))
    operation(*args, **kwargs)
