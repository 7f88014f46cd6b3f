"""Hive's metastore in a process of its own, with Postgres behind it; Iceberg's and Delta's tables are found in it.

Its embedded database, Derby, can't compare what an alteration expects.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millrace.java import find_java
from millrace.ports import free_port
from millrace_support.catalog_servers import await_port
from millrace_support.pages import ROOT
from millrace_support.postgres import PASSWORD, USER, find_programs, postgres

PEER = ROOT / ".peers" / "hive"
LOCKS_END_AFTER = "1s"
JAVA = [str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{PEER}/libs/*"]
SERVER = "org.apache.hadoop.hive.metastore.HiveMetaStore"
SCHEMA_TOOL = "org.apache.hadoop.hive.metastore.tools.schematool.MetastoreSchemaTool"


@contextmanager
def hive_metastore(folder: Path) -> Iterator[str]:
    """Runs a metastore, whose tables are in the folder, and yields its address; skips the test where it can't be had.

    A lock of a client that died ends after seconds, not after the five minutes that a metastore has by itself.
    """
    if (scripts := next(PEER.glob("apache-hive-metastore-*"), None)) is None:
        pytest.skip("`make hive` brings Hive's metastore")
    if (programs := find_programs()) is None:
        pytest.skip("no Postgres is installed, in which Hive's metastore keeps its tables")
    environment = os.environ | {"METASTORE_HOME": str(scripts)}
    with postgres(programs) as url, (folder / "metastore.log").open("wb") as log:
        port = free_port()
        address = f"jdbc:{url.replace(f'{USER}:{PASSWORD}@', '')}"
        login = ["-userName", USER, "-passWord", PASSWORD]
        init = [*JAVA, SCHEMA_TOOL, "-initSchema", "-dbType", "postgres", "-url", address, *login]
        subprocess.run(init, env=environment, stdout=log, stderr=log, cwd=folder, check=True, timeout=300)
        given = [f"-D{name}={value}" for name, value in _settings(folder, address, port).items()]
        server = subprocess.Popen([*JAVA, *given, SERVER], env=environment, stdout=log, stderr=log, cwd=folder)
        try:
            await_port(port, server)
            yield f"thrift://127.0.0.1:{port}"
        finally:
            server.kill()
            server.wait()


def client_jar() -> Path:
    """Returns the jar with the client of the metastore's version."""
    return next(PEER.glob("libs/hive-standalone-metastore-common-*.jar"))


def _settings(folder: Path, database: str, port: int) -> dict[str, str]:
    return {
        "metastore.thrift.port": str(port),
        "javax.jdo.option.ConnectionURL": database,
        "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
        "javax.jdo.option.ConnectionUserName": USER,
        "javax.jdo.option.ConnectionPassword": PASSWORD,
        "metastore.warehouse.dir": f"file://{folder}/managed",
        "metastore.warehouse.external.dir": f"file://{folder}/warehouse",
        "metastore.txn.timeout": LOCKS_END_AFTER,
        "metastore.acid.housekeeper.interval": "1s",
        "metastore.housekeeping.threads.on": "true",
        "metastore.metrics.enabled": "false",
    }
