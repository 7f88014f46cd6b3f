"""The resource through which the definitions reach the platform: its addresses and its folders."""

from __future__ import annotations

import os
from typing import Literal, TypedDict, cast

import dagster as dg

from millrace.client import Cluster
from millrace.json_values import Json
from millrace_pipelines.http import ServiceUnreachableError, post_json

CLIENT_TIMEOUT_S = 20.0
MAINTENANCE_TIMEOUT_S = 600.0


class RetentionOfPartition(TypedDict):
    """What retention deleted of one partition."""

    deleted_segments: int
    deleted_bytes: int


class RetentionReport(TypedDict):
    """What retention deleted."""

    seconds: float
    partitions: list[RetentionOfPartition]


class Finding(TypedDict):
    """A damaged place in a partition's log."""

    file: str
    position: int
    reason: str


class VerifiedPartition(TypedDict):
    """What the verification of one partition's log read and found."""

    records: int
    size_bytes: int
    findings: list[Finding]


class VerifyReport(TypedDict):
    """What a verification of all logs read and found."""

    seconds: float
    partitions: list[VerifiedPartition]


class MillraceResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # the value is the resource itself
    """A broker, its admin endpoint, the warehouse and the Spark master that loads run on.

    Attributes:
        bootstrap: `HOST:PORT` of a broker.
        admin_url: The broker's admin endpoint, `http://HOST:PORT`.
        warehouse_dir: The folder with the table of each topic, `<warehouse_dir>/<topic>`.
        schema_dir: The folder with declared schemas, `<schema_dir>/<topic>.json`; without one a table has raw records.
        master: Spark's master, for example `local[2,3]`.
    """

    bootstrap: str
    admin_url: str
    warehouse_dir: str
    schema_dir: str
    master: str

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

    def apply_retention(self) -> RetentionReport:
        """Has the broker apply retention to all logs; raises ServiceUnreachableError where it does not."""
        return cast("RetentionReport", self._maintain("retention"))

    def verify_logs(self) -> VerifyReport:
        """Has the broker verify all logs; raises ServiceUnreachableError where it does not."""
        return cast("VerifyReport", self._maintain("verify"))

    def _maintain(self, action: Literal["retention", "verify"]) -> dict[str, Json]:
        url = f"{self.admin_url}/maintenance/{action}"
        advice = "is the broker up, and is this the address of its admin endpoint (MILLRACE_ADMIN_URL)?"
        report = post_json(url, timeout_s=MAINTENANCE_TIMEOUT_S, advice=advice)
        if not isinstance(report, dict):
            raise ServiceUnreachableError(f"{url}: the answer is no report: {str(report)[:200]}; {advice}")
        return report
