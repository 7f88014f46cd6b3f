"""The resource through which the definitions reach the platform: its addresses and its folders."""

from __future__ import annotations

import os

import dagster as dg
from pydantic import Field

from millrace.client import Cluster
from millrace_pipelines.defs.admin_endpoint import TOKEN_VARIABLE, AdminEndpoint

CLIENT_TIMEOUT_S = 20.0


class MillraceResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # the value is the resource itself
    """A broker, its admin endpoint, the warehouse and the Spark master that loads run on.

    Attributes:
        bootstrap: `HOST:PORT` of a broker.
        admin_url: The broker's admin endpoint, `http://HOST:PORT`.
        admin_token: The token of the admin endpoint; if empty, that of the environment variable MILLRACE_ADMIN_TOKEN,
            which keeps it out of all that Dagster shows.
        warehouse_dir: The folder with the table of each topic, `<warehouse_dir>/<topic>`.
        schema_dir: The folder with declared schemas, `<schema_dir>/<topic>.json`; without one a table has raw records.
        master: Spark's master, for example `local[2,3]`.
        spark: Settings of Spark, for every load.
    """

    bootstrap: str
    admin_url: str
    warehouse_dir: str
    schema_dir: str
    master: str
    spark: dict[str, str] = Field(default={})
    admin_token: str = Field(default="", repr=False)

    def cluster(self) -> Cluster:
        """Returns a client of the cluster, to be closed; its calls raise ClientError where no broker answers."""
        return Cluster(self.bootstrap, client_id="millrace-dagster", timeout_s=CLIENT_TIMEOUT_S)

    def table_dir(self, topic: str) -> str:
        """Returns the folder of a topic's table."""
        return os.path.join(self.warehouse_dir, topic)

    def schema_file(self, topic: str) -> str | None:
        """Returns the path of the topic's declared schema, or None where it has none."""
        path = os.path.join(self.schema_dir, f"{topic}.json")
        return path if os.path.isfile(path) else None

    def admin(self) -> AdminEndpoint:
        """Returns the broker's admin endpoint."""
        return AdminEndpoint(self.admin_url, self.admin_token or os.environ.get(TOKEN_VARIABLE, ""))
