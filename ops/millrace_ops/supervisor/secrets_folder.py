"""The secrets of a hardened platform, which it makes at its first start and keeps, readable by their owner alone.

    DIR/secrets/ca.pem              the authority's certificate, which clients trust
    DIR/secrets/ca.key.pem          its key, which signs the brokers' certificate
    DIR/secrets/brokers.pem         the brokers' key and certificate, new at each start, for the hosts of that start
    DIR/secrets/NAME.properties     how a client is the user NAME: `--client-config` and Kafka's own tools take it
    DIR/secrets/zookeeper.jaas      the brokers' identity at the platform's own ZooKeeper, for both sides
    DIR/secrets/admin.token         the token of the admin endpoints

A file appears whole or not at all, so a start that was cut short is simply done again: what there is stays, and what is
missing is made.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from io import StringIO

import javaproperties

from millrace.clock import Clock
from millrace.errors import SetupError
from millrace.fs import FileSystem, write_file_durably
from millrace.security import property_names
from millrace.security.authority import Authority
from millrace.security.client_config import properties_of_file
from millrace.security.property_names import JAAS
from millrace.security.sasl.jaas import parse_jaas
from millrace.security.sasl.names import SCRAM_SHA_512
from millrace.zk.login import DIGEST_MODULE

MECHANISM = SCRAM_SHA_512
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
ZOOKEEPER_USER = "kafka"
PASSWORD_BYTES = 24


KEY_STORE = "brokers.pem"


def is_hardened(path: str, fs: FileSystem) -> bool:
    """Returns whether a folder of secrets is that of a hardened platform."""
    return fs.exists(os.path.join(path, KEY_STORE))


class SecretsFolder:
    """The folder; each method makes what it returns if it is missing."""

    def __init__(self, path: str, fs: FileSystem, clock: Clock) -> None:
        self.path = path
        self._fs = fs
        self._clock = clock
        os.makedirs(path, mode=0o700, exist_ok=True)
        os.chmod(path, 0o700)  # it may be there for a token already

    @property
    def trusted(self) -> str:
        """The path of the authority's certificate."""
        return self._file("ca.pem")

    def key_store(self, hosts: Iterable[str]) -> str:
        """Writes a new certificate of the brokers for these hosts, and returns the path of its key store."""
        made = self._kept("ca.key.pem", lambda: Authority.new(self._clock.now_ms()).key_store)
        authority = Authority.from_pem(made)
        self._write("ca.pem", authority.trusted)
        return self._write(KEY_STORE, authority.issue(hosts, self._clock.now_ms()))

    def client_config(self, user: str) -> str:
        """Returns the path of a user's client properties."""
        name = f"{user}.properties"
        self._kept(name, lambda: _dumped(self._login(user)))
        return self._file(name)

    def password(self, user: str) -> str:
        """Returns the password of a user; raises InvalidConfigError or SetupError if the file has no such login."""
        path = self.client_config(user)
        login = parse_jaas(properties_of_file(path).get(JAAS, ""), JAAS)
        if login.options.get("username") != user or not login.options.get("password"):
            raise SetupError(f"{path}: {JAAS} has no username={user} with a password")
        return login.options["password"]

    def jaas(self, user: str) -> str:
        """Returns the login of a user as the value of `sasl.jaas.config`."""
        return _scram_login(user, self.password(user))

    def zookeeper_jaas(self) -> str:
        """Returns the path of the JAAS file of ZooKeeper and its clients."""
        self._kept("zookeeper.jaas", lambda: _digest_logins(_new_secret()))
        return self._file("zookeeper.jaas")

    def admin_token(self) -> str:
        """Returns the token of the admin endpoints."""
        return self._kept("admin.token", _new_secret).strip()

    def _login(self, user: str) -> Mapping[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            property_names.MECHANISM: MECHANISM,
            JAAS: _scram_login(user, _new_secret()),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trusted,
        }

    def _kept(self, name: str, new: Callable[[], str]) -> str:
        path = self._file(name)
        if not self._fs.exists(path):
            self._write(name, new())
        with open(path, encoding="utf-8") as file:
            return file.read()

    def _write(self, name: str, text: str) -> str:
        path = self._file(name)
        write_file_durably(self._fs, path, text.encode(), is_secret=True)
        return path

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)


def _new_secret() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def _scram_login(user: str, password: str) -> str:
    return f'{SCRAM_MODULE} required username="{user}" password="{password}";'


def _digest_logins(password: str) -> str:
    return (
        f'Server {{\n    {DIGEST_MODULE} required\n    user_{ZOOKEEPER_USER}="{password}";\n}};\n'
        f'Client {{\n    {DIGEST_MODULE} required\n    username="{ZOOKEEPER_USER}"\n    password="{password}";\n}};\n'
    )


def _dumped(properties: Mapping[str, str]) -> str:
    text = StringIO()
    javaproperties.dump(properties, text, timestamp=False)
    return text.getvalue()
