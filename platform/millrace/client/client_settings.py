"""The properties of a client that only reads, under the names that `Producer` has for them too.

As keywords the names have `_` for `.`: `bootstrap_servers`, `client_id`, `security_protocol`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millrace.client.cluster import Cluster
from millrace.config import ConfigTable, build, declared_keys, setting, under_one_name, value_text
from millrace.errors import InvalidConfigError
from millrace.security.client_security import ClientSecurity, is_of_security
from millrace.suggestions import did_you_mean

SYNONYMS = {
    "bootstrap.servers": "broker.list",
    "metadata.broker.list": "broker.list",
    "socket.timeout.ms": "request.timeout.ms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Where the brokers are, what they call the client, and the security of its connections."""

    security: ClientSecurity = ClientSecurity.PLAINTEXT
    broker_list: str = setting("", "HOST:PORT of brokers, with commas between")
    client_id: str = setting("millrace", "what the brokers' logs and quotas call this client")
    request_timeout_ms: int = setting(30_000, "for a connection, and for an answer of a broker", minimum=1)


TABLE = ConfigTable(declared_keys(ClientSettings))


def client_settings(keywords: Mapping[str, Any]) -> ClientSettings:
    """Returns the settings that keywords give; raises InvalidConfigError, which names a wrong or missing one."""
    given = under_one_name(((name.replace("_", "."), value) for name, value in keywords.items()), SYNONYMS)
    texts = {name: value if isinstance(value, str) else value_text(value) for name, value in given.items()}
    security = ClientSecurity.from_properties(texts)
    texts = {name: text for name, text in texts.items() if not is_of_security(name)}
    check_known(texts, [*TABLE.keys, *SYNONYMS])
    if not texts.get("broker.list"):
        raise InvalidConfigError('which brokers? bootstrap_servers="HOST:PORT" is needed')
    return replace(build(ClientSettings, TABLE.parse(texts)), security=security)


def cluster_of(
    cluster: Cluster | str | None, security: ClientSecurity | None, properties: Mapping[str, Any]
) -> Cluster:
    """Returns the given cluster, or one by its address or by the properties of a client.

    Raises InvalidConfigError for unknown, wrong or missing properties, and for those that a given cluster has itself.
    """
    if isinstance(cluster, Cluster):
        if properties:
            raise InvalidConfigError(f"{', '.join(properties)}: the cluster that is given has properties of its own")
        return cluster
    settings = client_settings(properties if cluster is None else {"broker_list": cluster, **properties})
    return Cluster(
        settings.broker_list,
        client_id=settings.client_id,
        timeout_s=settings.request_timeout_ms / 1000,
        security=settings.security if security is None else security,
    )


def check_known(properties: Iterable[str], known: Iterable[str]) -> None:
    """Raises InvalidConfigError for the first property that is not known, and says which one may have been meant."""
    names = [*known]
    for name in properties:
        if name not in names:
            raise InvalidConfigError(f"unknown property {name}{did_you_mean(name, names)}")
