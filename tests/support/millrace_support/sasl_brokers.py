"""Brokers whose clients have to authenticate: alice does by PLAIN and SCRAM with `PASSWORD`, others by tokens."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from millrace.fs import OsFileSystem
from millrace.security.sasl.mechanisms import LOGIN_MODULES
from millrace.testing.broker import BrokerProcess
from millrace_ops.users.stored_users import in_folder
from millrace_support.admin_requests import read_request
from millrace_support.token_server import AUDIENCE, ISSUER, TokenServer

USER, PASSWORD = "alice", 'pen"cil\\'
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM)
QUOTED_PASSWORD = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
BEARER = "org.apache.kafka.common.security.oauthbearer"
OF_PLAIN = f'{LOGIN_MODULES["PLAIN"]} required user_{USER}="{QUOTED_PASSWORD}";'


def sasl_properties(*mechanisms: str, **others: str) -> dict[str, str]:
    """Returns the properties of a listener, that of `--listen`, on which clients authenticate."""
    logins = {"PLAIN": OF_PLAIN, "OAUTHBEARER": f"{LOGIN_MODULES['OAUTHBEARER']} required;"}
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(mechanisms),
        **{
            f"listener.name.plaintext.{one.lower()}.sasl.jaas.config": login
            for one, login in logins.items()
            if one in mechanisms
        },
        **{name.replace("_", "."): value for name, value in others.items()},
    }


def tokens_between_brokers(listener: str, tokens: TokenServer, client_id: str, secret: str) -> dict[str, str]:
    """Returns the properties by which brokers, Apache Kafka's too, log in to each other by tokens on a listener.

    Others log in by PLAIN there, as alice with the password "hush". Tokens are asked for with the scope `client_id`.
    """
    login = f'required clientId="{client_id}" clientSecret="{secret}" scope="{client_id}";'
    on_listener = f"listener.name.{listener.lower()}"
    by_token = f"{on_listener}.oauthbearer"
    return {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        f"{on_listener}.plain.sasl.jaas.config": f'{LOGIN_MODULES["PLAIN"]} required user_{USER}="hush";',
        f"{by_token}.sasl.jaas.config": f"{LOGIN_MODULES['OAUTHBEARER']} {login}",
        f"{by_token}.sasl.login.callback.handler.class": f"{BEARER}.OAuthBearerLoginCallbackHandler",
        f"{by_token}.sasl.server.callback.handler.class": f"{BEARER}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": tokens.token_url,
        "sasl.oauthbearer.jwks.endpoint.url": tokens.keys_url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }


def renewed_authentications(broker: BrokerProcess) -> float:
    """Returns how often clients of a broker have authenticated again on their connections."""
    with urllib.request.urlopen(read_request(broker, "metrics")) as answer:  # noqa: S310 -- its own endpoint
        families = text_string_to_metric_families(answer.read().decode())
    samples = {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}
    return samples["millrace_authentications_total", "renewed"]


def sasl_broker(folder: Path, properties: Mapping[str, str] | None = None) -> BrokerProcess:
    """Starts a standalone broker whose first user has been made in its folder."""
    with in_folder(str(folder), OsFileSystem()) as users:
        users.set_password(USER, SCRAM, PASSWORD, 4096)
    return BrokerProcess(folder, properties=properties or sasl_properties(*MECHANISMS))


def client_jaas(mechanism: str, user: str = USER, password: str = QUOTED_PASSWORD) -> str:
    """Returns what a client of Kafka has as `sasl.jaas.config`."""
    return f'{LOGIN_MODULES[mechanism]} required username="{user}" password="{password}";'
