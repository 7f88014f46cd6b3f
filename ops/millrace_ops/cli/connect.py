"""Opens the cluster that a command works on, secured as a file of Kafka's client properties says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.client import Cluster


def open_cluster(bootstrap: str, client_config: str | None, *, timeout_s: float = 30.0) -> Cluster:
    """Returns the cluster at an address.

    Raises InvalidConfigError where its file, or the environment, can't be used.
    """
    from millrace.client import Cluster
    from millrace.security.client_config import read_client_security

    return Cluster(bootstrap, timeout_s=timeout_s, security=read_client_security(client_config))
