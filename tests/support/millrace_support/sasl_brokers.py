"""Brokers whose clients have to authenticate: alice does by PLAIN and SCRAM with `PASSWORD`, others by tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from millrace.security.sasl.mechanisms import LOGIN_MODULES
from millrace.testing.broker import BrokerProcess
from millrace_ops.users.stored_users import in_folder

USER, PASSWORD = "alice", 'pen"cil\\'
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM)
QUOTED_PASSWORD = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
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


def sasl_broker(folder: Path, properties: Mapping[str, str] | None = None) -> BrokerProcess:
    """Starts a standalone broker whose first user has been made in its folder."""
    with in_folder(str(folder)) as users:
        users.set_password(USER, SCRAM, PASSWORD, 4096)
    return BrokerProcess(folder, properties=properties or sasl_properties(*MECHANISMS))


def client_jaas(mechanism: str, user: str = USER, password: str = QUOTED_PASSWORD) -> str:
    """Returns what a client of Kafka has as `sasl.jaas.config`."""
    return f'{LOGIN_MODULES[mechanism]} required username="{user}" password="{password}";'
