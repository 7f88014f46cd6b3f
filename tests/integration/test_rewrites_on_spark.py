"""Rewrites as tasks of a Spark cluster: as in threads, whatever is tried again, speculated, or lost after it wrote."""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark import cloudpickle

from millrace.fs import OsFileSystem
from millrace_pipelines.spark.session import spark_session
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.errors import LoadFailedError, TableNotFoundError
from millrace_pipelines.warehouse.spark_tasks import SparkTasks, tasks_of, tasks_on
from millrace_pipelines.warehouse.tasks import THREADS
from millrace_support.rewrites import FILES, REWRITES, rows_in, table_of_files, unnamed_files
from millrace_support.spark import SparkCluster

FS = OsFileSystem()
EXECUTOR = "CoarseGrainedExecutorBackend"
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.1",
    "spark.excludeOnFailure.enabled": "false",
}

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors have no tests to import
pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """A session on two workers; Spark speculates on another host only, so that each has its own."""
    directory = tmp_path_factory.mktemp("cluster")
    with (
        SparkCluster(directory, workers=2, hosts=["127.0.0.1", "127.0.0.2"]) as cluster,
        spark_session("rewrites", cluster.master, SETTINGS) as session,
    ):
        yield session


@dataclass(frozen=True)
class Attempt:
    """Runs a work, and after the first attempt at the first piece does something else, once for all attempts."""

    work: Callable
    then: Callable
    folder: Path

    def __call__(self, numbered):
        number, piece = numbered
        result = self.work(piece)
        if number == 0:
            try:
                (self.folder / "first").mkdir()
            except FileExistsError:
                (self.folder / "again").touch()
            else:
                self.then(self.folder)
        return result


class Troubled(SparkTasks):
    """Spark's tasks, the first of which meets trouble after its work has written."""

    def __init__(self, spark, then, folder):
        super().__init__(spark, "troubled")
        self.then, self.folder = then, folder

    def run(self, work, pieces):
        folder = self.folder / f"run-{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        return super().run(Attempt(work, self.then, folder), enumerate(pieces))


def fails(_):
    raise OSError("no space left on this machine")


def loses_its_executor(_):
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if EXECUTOR in (folder / "cmdline").read_text() and (folder / "cwd").readlink() == Path.cwd():
                os.kill(int(folder.name), signal.SIGKILL)
                signal.pause()


def waits_until_spark_has_speculated(folder):
    while not (folder / "again").exists():
        time.sleep(0.05)


@pytest.mark.parametrize("rewrite", REWRITES)
def test_a_rewrite_on_a_cluster_is_that_in_threads(rewrite, spark, tmp_path):
    expected, found = (table_of_files(str(tmp_path / name)) for name in ("expected", "found"))
    REWRITES[rewrite](expected, THREADS)
    REWRITES[rewrite](found, tasks_of(spark, rewrite))
    assert rows_in(found.directory) == rows_in(expected.directory)
    assert unnamed_files(found.directory) == set()


@pytest.mark.parametrize("then", [fails, loses_its_executor, waits_until_spark_has_speculated])
def test_a_piece_that_is_tried_again_after_it_wrote_leaves_one_result(then, spark, tmp_path):
    expected, found = (table_of_files(str(tmp_path / name)) for name in ("expected", "found"))
    (tmp_path / "trouble").mkdir()
    REWRITES["erase"](expected, THREADS)
    REWRITES["erase"](found, Troubled(spark, then, tmp_path / "trouble"))
    assert all((run / "again").exists() for run in (tmp_path / "trouble").iterdir())
    assert rows_in(found.directory) == rows_in(expected.directory)
    assert unnamed_files(found.directory) == set()
    assert audit(found.directory) == []


@dataclass(frozen=True)
class Raises:
    error: Exception

    def __call__(self, piece):
        raise self.error


def test_errors_of_tasks_are_told_by_their_own_sentences(spark):
    tasks = tasks_of(spark, "look")
    with pytest.raises(TableNotFoundError, match=r"^no table here$"):
        list(tasks.run(Raises(TableNotFoundError("no table here")), range(FILES)))
    with pytest.raises(LoadFailedError, match=r"^look: ValueError: wrong$"):
        list(tasks.run(Raises(ValueError("wrong")), range(FILES)))


def test_results_come_in_the_order_of_pieces_however_many_tasks_there_are(spark):
    for pieces in (0, 1, 2, 50):
        assert list(tasks_of(spark, "order").run(abs, range(-pieces, 0))) == [*range(pieces, 0, -1)]


def test_a_master_on_this_machine_works_in_threads():
    for master in ("local", "local[2]", "local[*,3]"):
        with tasks_on(master, {}, "here") as tasks:
            assert tasks is THREADS
