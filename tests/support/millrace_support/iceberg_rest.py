"""Iceberg's own REST catalog server, with which its tests run, in a process of its own; its tables are in a folder."""

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

JARS = ROOT / ".peers" / "iceberg" / "rest"


@contextmanager
def rest_server(folder: Path) -> Iterator[str]:
    """Runs the server and yields its address; skips the test without its jars."""
    if not any(JARS.glob("iceberg-open-api-*.jar")):
        pytest.skip("`make iceberg` brings Iceberg's REST catalog server")
    port = free_port()
    settings = {
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{folder}/server.sqlite",
        "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_REST_PORT": str(port),
    }
    command = [str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*"]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "org.apache.iceberg.rest.RESTCatalogServer"],
            env=os.environ | settings, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            await_port(port, server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()
            server.wait()
