"""What pages are made from: the cluster, the newest overview of it, and the settings."""

from __future__ import annotations

from functools import cached_property

from millrace.client import Cluster
from millrace.clock import Clock
from millrace.extras import require
from millrace.security.client_config import read_client_security
from millrace_ops.console.audits import Audits
from millrace_ops.console.clusters import Clusters
from millrace_ops.console.settings import ConsoleSettings
from millrace_ops.console.values import Decoder
from millrace_ops.console.watch import Watch

CLIENT_ID = "millrace-console"
TIMEOUT_S = 10.0


class Console:
    """What all pages share; the cluster is asked for nothing before a page needs it."""

    def __init__(self, settings: ConsoleSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self._security = read_client_security(settings.client_config, environment={})
        self.clusters = Clusters(self._connect)
        self.watch = Watch(self.clusters, clock)
        self.audits = Audits(settings, clock)

    @cached_property
    def decoder(self) -> Decoder | None:
        """Returns what decodes values by the schema registry; None without one. Raises SetupError or SchemaError."""
        if not self.settings.schema_registry:
            return None
        require("decoding by a schema registry", "pipelines")
        from millrace_ops.console.decoding import RememberingDecoder  # noqa: PLC0415
        from millrace_ops.record_values.by_schema import SchemaValues  # noqa: PLC0415  # takes the packages of the extra

        return RememberingDecoder(SchemaValues(self.settings.schema_registry), self.clock)

    def _connect(self) -> Cluster:
        return Cluster(
            self.settings.bootstrap,
            client_id=CLIENT_ID,
            timeout_s=TIMEOUT_S,
            clock=self.clock,
            security=self._security,
        )
