"""Iceberg's own REST catalog server, with which its tests run, in a process of its own; its tables are in a folder."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from millrace.java import find_java
from millrace_support.pages import ROOT

JARS = ROOT / ".peers" / "iceberg" / "rest"
NAME = "resting"
START_TIMEOUT_S = 60.0


@contextmanager
def rest_catalog(folder: Path) -> Iterator[None]:
    """Runs the server, which PyIceberg's configuration calls `resting` meanwhile; skips the test without its jars."""
    if not any(JARS.glob("iceberg-open-api-*.jar")):
        pytest.skip("`make iceberg` brings Iceberg's REST catalog server")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = {
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{folder}/server.sqlite",
        "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_REST_PORT": str(port),
    }
    command = [str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*"]
    with (folder / "server.log").open("wb") as log, pytest.MonkeyPatch.context() as patch:
        server = subprocess.Popen(
            [*command, "org.apache.iceberg.rest.RESTCatalogServer"],
            env=os.environ | settings, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            _await_port(port, server)
            patch.setenv(f"PYICEBERG_CATALOG__{NAME.upper()}__TYPE", "rest")
            patch.setenv(f"PYICEBERG_CATALOG__{NAME.upper()}__URI", f"http://127.0.0.1:{port}")
            yield
        finally:
            server.kill()
            server.wait()


def _await_port(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError(f"the REST catalog does not answer at port {port}")
