"""The resource through which the definitions reach the platform: its addresses and its folders.

What is not declared is taken from the environment of the process in which a step or a tick begins, not while
definitions load.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, Self

import dagster as dg
from pydantic import Field

from millrace.client import Cluster
from millrace.security.client_config import VARIABLE as CLIENT_CONFIG
from millrace.security.client_config import admin_token, read_client_security
from millrace_pipelines.declaration.cluster import ADMIN_URL, SCHEMA_DIR
from millrace_pipelines.declaration.loads import SPARK_MASTER, table_dir
from millrace_pipelines.defs.admin_endpoint import AdminEndpoint
from millrace_pipelines.warehouse.stores.options import declare_store_options
from millrace_pipelines.warehouse.tasks import THREADS, Tasks

CLIENT_TIMEOUT_S = 20.0
BOOTSTRAP = "MILLRACE_BOOTSTRAP"
VARIABLES: Mapping[str, str] = {
    "client_config": CLIENT_CONFIG,  # for Spark's tasks, which may lack the variable
    "admin_url": ADMIN_URL,
    "schema_dir": SCHEMA_DIR,
    "master": SPARK_MASTER,
    "dagster_url": "MILLRACE_DAGSTER_URL",
}
"""The variables of fields that are empty."""


class MillraceResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # the value is the resource itself
    """A broker, its admin endpoint, the warehouse and the Spark master that loads run on.

    Attributes:
        bootstrap: `HOST:PORT` of a broker.
        client_config: The file with Kafka's client properties of security, or env:NAME; "" for that of the environment.
            Only this name is in what Dagster shows and keeps: each process reads the file itself.
        admin_url: The broker's admin endpoint, `http://HOST:PORT`, or `https://` with TLS, for which `client_config`
            says whom to trust; those of several brokers with commas between.
        admin_token: The token of the admin endpoint; if empty, that of the environment variable MILLRACE_ADMIN_TOKEN,
            or of the file that MILLRACE_ADMIN_TOKEN_FILE names, which keep it out of all that Dagster shows.
        warehouse_dir: The folder of the tables, or s3://bucket/path.
        stores: Options of stores by the beginnings of addresses. Dagster shows them: a secret is written env:NAME, and
            each process reads the variable itself.
        schema_dir: The folder with declared schemas, `<schema_dir>/<topic>.json`; without one a table has raw records.
        master: Spark's master, for example `local[2,3]`; its executors, if it has some, rewrite and audit tables, too.
        spark: Settings of Spark, for every load.
        load_metrics: The folder of the files that tell Prometheus of loads (`warehouse.load.metrics`); "" for none.
        dagster_url: The webserver, which loads definitions again where topics come or go; "" for none.
    """

    bootstrap: str
    admin_url: str
    warehouse_dir: str
    schema_dir: str
    master: str
    spark: dict[str, str] = Field(default={})
    stores: dict[str, dict[str, str]] = Field(default={})
    load_metrics: str = ""
    dagster_url: str = ""
    client_config: str = ""
    admin_token: str = Field(default="", repr=False)

    def create_resource(self, context: dg.InitResourceContext) -> Self:  # noqa: ARG002  Dagster's interface
        """Returns the resource with empty fields filled from the environment; the process gets the stores' options.

        Raises:
            SetupError: An option of a store names a variable that is not set.
        """
        declare_store_options(self.stores)
        return self.model_copy(update=named_by_environment(self, VARIABLES))

    def cluster(self) -> Cluster:
        """Returns a client of the cluster, to be closed; its calls raise ClientError where no broker answers."""
        return Cluster(
            self.bootstrap,
            client_id="millrace-dagster",
            timeout_s=CLIENT_TIMEOUT_S,
            security=read_client_security(self.client_config),
        )

    def table_dir(self, location: str) -> str:
        """Returns the path of a table: `location` below the warehouse, or itself where it is absolute or s3://…."""
        return table_dir(self.warehouse_dir, location)

    @contextmanager
    def tasks(self, name: str) -> Iterator[Tasks]:
        """Yields where work on tables' files runs, which `name` describes: executors of the master, or threads here."""
        if not self.master:
            yield THREADS
            return
        from millrace_pipelines.warehouse.spark_tasks import tasks_on  # noqa: PLC0415  # PySpark, once it is used

        with tasks_on(self.master, self.spark, name) as tasks:
            yield tasks

    def schema_file(self, topic: str) -> str | None:
        """Returns the path of the topic's declared schema, or None where it has none."""
        path = os.path.join(self.schema_dir, f"{topic}.json")
        return path if os.path.isfile(path) else None

    def admin(self) -> AdminEndpoint:
        """Returns the broker's admin endpoint, whose certificate is trusted as those of brokers are."""
        token = self.admin_token or admin_token(os.environ)
        has_tls = "https:" in self.admin_url
        return AdminEndpoint(
            self.admin_url, token, read_client_security(self.client_config).context if has_tls else None
        )


def named_by_environment(resource: object, variables: Mapping[str, str]) -> dict[str, str]:
    """Returns, for each empty field of a resource, the value of its environment variable; "" where that is not set."""
    return {field: os.environ.get(name, "") for field, name in variables.items() if not getattr(resource, field)}


class HasResources(Protocol):
    """The context that Dagster gives a step, a check or a tick, as far as resources are read from it."""

    @property
    def resources(self) -> object:
        """Returns the resources that the definition requires, by name."""
        ...


def resource_of(context: HasResources, cluster: str) -> MillraceResource:
    """Returns the resource of a cluster, which has the cluster's name; the definition must require it."""
    found = getattr(context.resources, cluster)
    assert isinstance(found, MillraceResource)
    return found
