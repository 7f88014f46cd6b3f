"""Loads on a standalone cluster, whose worker dies or has its Python from an archive, and over Spark Connect."""

import re
import shutil
import socket
import subprocess
import sys
import tarfile
from dataclasses import replace

import pyarrow.dataset as ds
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.spark.session import is_remote, spark_session
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import FolderNotSharedError
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions, SilentListener
from millrace_pipelines.warehouse.tables.find import read_failed_loads
from millrace_support.spark import SparkCluster, SparkConnect

RECORDS = 24_000

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.fixture(scope="module")
def topic(tmp_path_factory):
    """A broker with the topic `events`, of two partitions."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("events", 2)
            for number in range(0, RECORDS, 2000):
                values = [NewRecord(b"%d" % each) for each in range(number, number + 2000)]
                SyncProducer(cluster).send("events", number // 2000 % 2, values)
        yield broker.bootstrap


# The first executor starts its Python at once, all others after a worker was killed, so a task is left until then.
PYTHON_IN_TURN = """#!/bin/sh
mkdir {folder}/first 2>/dev/null || until [ -e {folder}/killed ]; do sleep 0.1; done
exec {python} "$@"
"""


class Killing(SilentListener):
    """Kills a worker, and its executor, as soon as a task is done, and notes that in a file."""

    def __init__(self, worker, killed):
        self.worker, self.killed, self.done_then = worker, killed, None

    def tasks_done(self, done, total, records):
        if self.done_then is None and done:
            self.done_then = (done, total)
            self.worker.kill()
            self.killed.touch()


def values(table):
    files = Table.load(table, OsFileSystem()).files()
    return sorted(int(value) for value in ds.dataset(files).to_table(columns=["value"]).column("value").to_pylist())


def test_a_worker_killed_amid_the_job_changes_nothing(topic, tmp_path):
    python = tmp_path / "python"
    python.write_text(PYTHON_IN_TURN.format(folder=tmp_path, python=sys.executable))
    python.chmod(0o755)
    with SparkCluster(tmp_path / "cluster", workers=2) as cluster:
        options = LoadOptions(
            topic="events",
            table=str(tmp_path / "table"),
            bootstrap=topic,
            master=cluster.master,
            spark_settings={"spark.executor.memory": "512m", "spark.pyspark.python": str(python)},
            max_records_per_task=1000,
        )
        killing = Killing(cluster.workers[0], tmp_path / "killed")
        report = load_topic(options, listener=killing)
    done, total = killing.done_then
    assert 0 < done < total
    assert (tmp_path / "first").exists()
    assert report.rows == RECORDS
    assert values(options.table) == list(range(RECORDS))
    assert audit(options.table) == []


def test_the_workers_python_comes_by_an_archive(topic, tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ntouch {tmp_path}/was-used\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as archive:
        archive.add(python, "bin/python")
    with SparkCluster(tmp_path / "cluster", workers=1) as cluster:
        options = LoadOptions(
            topic="events",
            table=str(tmp_path / "table"),
            bootstrap=topic,
            master=cluster.master,
            spark_settings={
                "spark.executor.memory": "512m",
                "spark.archives": f"{tmp_path}/packed.tar.gz#environment",
                "spark.pyspark.python": "./environment/bin/python",
            },
        )
        assert load_topic(options).rows == RECORDS
    assert (tmp_path / "was-used").exists()
    assert audit(options.table) == []


def test_a_load_over_spark_connect(topic, tmp_path):
    with SparkConnect(tmp_path / "connect") as server:
        options = LoadOptions(
            topic="events",
            table=str(tmp_path / "table"),
            bootstrap=topic,
            master=server.address,
            max_records_per_task=5000,
            max_records_per_run=10_000,
        )
        assert load_topic(options).rows == 10_000
        with spark_session("again", server.address) as session:
            assert is_remote(session)
            told = []
            listener = SilentListener()
            listener.tasks_done = lambda *progress: told.append(progress)
            assert load_topic(options, spark=session, listener=listener).rows == 10_000
            assert told[-1] == (2, 2, 10_000)
            assert load_topic(options, spark=session).rows == RECORDS - 20_000
    assert values(options.table) == list(range(RECORDS))
    assert audit(options.table) == []


# A Python of Spark's workers in which an empty disk, that only root may write to, lies over one folder.
COVERED = """#!/bin/sh
exec unshare --user --map-root-user --mount sh -c 'mount -t tmpfs none "$0" && exec "$@"' {folder} {python} "$@"
"""


def test_an_executor_that_does_not_see_the_folder_is_named_with_what_to_do(topic, tmp_path, warm_programs, monkeypatch):
    for name in warm_programs:  # a warm Python is forked from a server that sees the folder
        monkeypatch.delenv(name)
    covered = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run(covered, check=False).returncode:
        pytest.skip("this machine lets a test mount nothing")
    folder, python = tmp_path / "lake", tmp_path / "python"
    folder.mkdir()
    python.write_text(COVERED.format(folder=folder, python=sys.executable))
    python.chmod(0o755)
    options = LoadOptions(topic="events", table=str(folder / "table"), bootstrap=topic)
    settings = {"spark.executor.memory": "512m", "spark.pyspark.python": str(python)}
    told = f"loading events: Spark's executor on {socket.gethostname()} does not see {folder}/table; all executors need"
    with (
        SparkCluster(tmp_path / "cluster", workers=1) as cluster,
        pytest.raises(FolderNotSharedError, match=f"^{re.escape(told)}"),
    ):
        load_topic(replace(options, master=cluster.master, spark_settings=settings))
    assert read_failed_loads(options.table, OsFileSystem()).reason.endswith("(docs/warehouse.md, Where it runs)")
    assert list(folder.rglob("*.parquet")) == []
    assert load_topic(options).rows == RECORDS
