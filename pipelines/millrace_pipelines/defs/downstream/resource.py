"""The resource of downstream jobs: where ZooKeeper, the brokers and the outputs are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Self

import dagster as dg

from millrace.security.client_config import VARIABLE as CLIENT_CONFIG
from millrace_pipelines.declaration.state import ZOOKEEPER
from millrace_pipelines.defs.resources import named_by_environment
from millrace_pipelines.downstream import MicroBatchJob, RunOptions
from millrace_pipelines.downstream.consume import DEFAULT_SESSION_TIMEOUT_MS

VARIABLES: Mapping[str, str] = {"zookeeper": ZOOKEEPER, "client_config": CLIENT_CONFIG}
"""The variables of fields that are empty."""


def groups_resource(cluster: str) -> str:
    """Returns the name of a cluster's `ConsumerGroupResource`."""
    return f"{cluster}_consumer_groups"


class ConsumerGroupResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # the value is the resource itself
    """Groups that ZooKeeper coordinates, and the folder in which the jobs that they feed keep their outputs.

    Attributes:
        zookeeper: `HOST:PORT[,HOST:PORT…][/chroot]`; "" for that of the environment.
        bootstrap: `HOST:PORT` of a broker.
        client_config: The file with Kafka's client properties of security, or env:NAME; "" for that of the environment.
        output_dir: The folder with the table of each job, `<output_dir>/<job>`.
        session_timeout_ms: How long a worker may be silent before its partitions go to the others.
    """

    zookeeper: str
    bootstrap: str
    output_dir: str
    client_config: str = ""
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS

    def create_resource(self, context: dg.InitResourceContext) -> Self:  # noqa: ARG002  Dagster's interface
        """Returns the resource as steps see it, with what the environment has for empty fields."""
        return self.model_copy(update=named_by_environment(self, VARIABLES))

    def location(self, job: MicroBatchJob) -> str:
        """Returns where a job's output is."""
        return os.path.join(self.output_dir, job.name)

    def options(self, job: MicroBatchJob, *, max_seconds: float, accept_lost_offsets: bool) -> RunOptions:
        """Returns the options of a run of the job, in the group of its name."""
        return RunOptions(
            zookeeper=self.zookeeper,
            bootstrap=self.bootstrap,
            client_config=self.client_config or None,
            output=self.location(job),
            max_seconds=max_seconds,
            accept_lost_offsets=accept_lost_offsets,
            session_timeout_ms=self.session_timeout_ms,
        )
