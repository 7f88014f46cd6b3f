"""Catalogs of every kind that Iceberg tables are committed to, each with its real server where it can be had.

embedded    SQLite in a folder
postgres    PyIceberg's SQL catalog in a Postgres server of the machine's packages
rest        Iceberg's own REST server (`make iceberg`)
hive        Hive's metastore (`make hive`)
glue        moto, which is made to compare versions of tables as AWS Glue does
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from moto.glue.exceptions import GlueClientError
from moto.glue.models import GlueBackend
from moto.server import ThreadedMotoServer

from millrace.ports import free_port
from millrace_pipelines.warehouse.iceberg.catalogs import forget_catalogs
from millrace_support.catalog_servers import await_port
from millrace_support.hive_metastore import hive_metastore
from millrace_support.iceberg_rest import rest_server
from millrace_support.postgres import find_programs, postgres

NAME = "tried"
VARIABLES = f"PYICEBERG_CATALOG__{NAME.upper()}__"
AWS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "secret-of-tests", "AWS_DEFAULT_REGION": "eu-central-1"}


@contextmanager
def _embedded(folder: Path) -> Iterator[dict[str, str]]:
    yield {"uri": f"sqlite:///{folder}/catalog.sqlite?timeout=60", "warehouse": f"file://{folder}"}


@contextmanager
def _postgres(folder: Path) -> Iterator[dict[str, str]]:
    if (programs := find_programs()) is None:
        pytest.skip("no Postgres is installed")
    with postgres(programs) as url:
        uri = url.replace("postgresql://", "postgresql+psycopg2://")
        yield {"type": "sql", "uri": uri, "warehouse": f"file://{folder}"}


@contextmanager
def _rest(folder: Path) -> Iterator[dict[str, str]]:
    with rest_server(folder) as uri:
        yield {"type": "rest", "uri": uri}


@contextmanager
def _hive(folder: Path) -> Iterator[dict[str, str]]:
    with hive_metastore(folder) as uri:
        yield {"type": "hive", "uri": uri}


@contextmanager
def _glue(folder: Path) -> Iterator[dict[str, str]]:
    with glue_server() as endpoint, pytest.MonkeyPatch.context() as patch:
        for name, value in AWS.items():
            patch.setenv(name, value)
        yield {"type": "glue", "glue.endpoint": endpoint, "warehouse": f"file://{folder}"}


CATALOGS: Mapping[str, Callable[[Path], AbstractContextManager[dict[str, str]]]] = {
    "embedded": _embedded,
    "postgres": _postgres,
    "rest": _rest,
    "hive": _hive,
    "glue": _glue,
}


@contextmanager
def glue_server(*, compares: bool = True) -> Iterator[str]:
    """Runs moto and yields its address; a change of a table's old version is refused there, as AWS Glue does it."""
    server = ThreadedMotoServer("127.0.0.1", port := free_port(), verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        if compares:
            patch.setattr("moto.glue.responses.GlueResponse.update_table", _update_table)
        server.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.stop()


def _update_table(response: Any) -> Any:
    from moto.core.responses import EmptyResult  # noqa: PLC0415

    backend: GlueBackend = response.glue_backend
    given = response.parameters["TableInput"]
    table = backend.get_table(response.parameters["DatabaseName"], given["Name"])
    if response.parameters.get("VersionId", table.as_dict()["VersionId"]) != table.as_dict()["VersionId"]:
        raise GlueClientError("ConcurrentModificationException", "Update table failed due to concurrent modifications.")
    table.update(given)
    return EmptyResult()


@contextmanager
def catalog(kind: str, folder: Path) -> Iterator[str]:
    """Runs a catalog and yields what the addresses of its tables begin with; PyIceberg's configuration names it."""
    with CATALOGS[kind](folder) as settings, configured(settings):
        yield f"iceberg:{NAME}/"


COMMITS = {"rest": "POST [^ ]*/tables/", "hive": "(?s).{0,12}alter_table_(with_environment_context|req)"}
"""By the kind of a catalog, a pattern with which requests for a commit begin."""


@contextmanager
def losing_catalog(kind: str, folder: Path, *, count: int, every: int) -> Iterator[str]:
    """Runs a catalog as `catalog` does, behind a relay that loses answers to commits; SQLite, a file, has none."""
    if kind not in COMMITS:
        with catalog(kind, folder) as prefix:
            yield prefix
        return
    with CATALOGS[kind](folder) as settings:
        own, port = int(settings["uri"].rpartition(":")[2]), free_port()
        relay = [sys.executable, "-m", "millrace_support.stores.losing_relay", str(port), str(own)]
        path = os.pathsep.join(filter(None, sys.path))
        with subprocess.Popen(
            [*relay, COMMITS[kind], str(count), str(every)], env=os.environ | {"PYTHONPATH": path}
        ) as running:
            try:
                await_port(port, running)
                with configured({**settings, "uri": settings["uri"].replace(str(own), str(port))}):
                    yield f"iceberg:{NAME}/"
            finally:
                running.kill()


@contextmanager
def configured(settings: Mapping[str, str]) -> Iterator[None]:
    """Lets PyIceberg's configuration have the catalog `tried` with these settings."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(VARIABLES)]:
            patch.delenv(name)
        for name, value in settings.items():
            key = name.replace("-", "_").replace(".", "__").upper()
            patch.setenv(f"{VARIABLES}{key}", value)
        forget_catalogs()
        yield
    forget_catalogs()


def configured_uri() -> str:
    """Returns the address of the catalog `tried`, as PyIceberg's configuration has it."""
    return os.environ[f"{VARIABLES}URI"]
