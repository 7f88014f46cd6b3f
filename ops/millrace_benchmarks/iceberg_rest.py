"""Iceberg's own REST catalog server, run from the jars that `make iceberg` brings; its tables are in a folder.

with rest_catalog(place) as name:
    f"iceberg:{name}/demo.events"       # an address: PyIceberg's configuration knows the catalog meanwhile
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from millrace.addresses import LOOPBACK
from millrace.errors import SetupError
from millrace.java import find_java
from millrace.lifeline import end_process, start_with_lifeline
from millrace.ports import free_port
from millrace_benchmarks.kafka_broker import PEERS

MAIN_CLASS = "org.apache.iceberg.rest.RESTCatalogServer"
FLAGS = ("-Xms256m", "-Xmx256m")
NAME = "bench"
VARIABLES = f"PYICEBERG_CATALOG__{NAME.upper()}__"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.1


@contextmanager
def rest_catalog(place: Path) -> Iterator[str]:
    """Yields the name by which PyIceberg's configuration knows the catalog of a server that runs meanwhile.

    Raises:
        SetupError: Its jars, or Java, are missing, or it does not start.
    """
    jars = Path(PEERS).absolute() / "iceberg" / "rest"
    if not any(jars.glob("iceberg-open-api-*.jar")):
        raise SetupError(f"Iceberg's REST catalog is not in {jars}: `make iceberg` brings it (needs Maven's mvn)")
    port, log_file = free_port(), place / "iceberg-rest.log"
    settings = {
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{place}/iceberg-rest.sqlite",
        "CATALOG_WAREHOUSE": f"file://{place}/iceberg-rest",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_REST_PORT": str(port),
    }
    command = [str(find_java()), *FLAGS, "-cp", f"{jars}/*", MAIN_CLASS]
    with log_file.open("wb") as log:
        server = start_with_lifeline(command, environment=os.environ | settings, stdout=log, stderr=subprocess.STDOUT)
    try:
        _await_port(port, server, log_file)
        os.environ |= {f"{VARIABLES}TYPE": "rest", f"{VARIABLES}URI": f"http://{LOOPBACK}:{port}"}
        yield NAME
    finally:
        for variable in ("TYPE", "URI"):
            os.environ.pop(VARIABLES + variable, None)
        end_process(server, signal.SIGKILL, STOP_TIMEOUT_S)


def _await_port(port: int, server: subprocess.Popen[bytes], log_file: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return
        time.sleep(POLL_INTERVAL_S)
    raise SetupError(f"Iceberg's REST catalog does not start:\n{log_file.read_text(errors='replace')[-2000:]}")
