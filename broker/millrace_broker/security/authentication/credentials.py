"""The SCRAM credentials of users, as the newest image of the cluster has them (`/config/users/[user]` in ZooKeeper).

An unknown name gets a credential that is made up (`UnknownUsers`), so that nobody learns which users exist. Making it
up costs the same for every name. Credentials are parsed when an image brings them, and not while somebody waits.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple

from millrace.errors import UnacceptableCredentialError
from millrace.security.sasl.scram import MIN_ITERATIONS, SCRAM_HASHES, ScramCredential, nonce, parse_credential
from millrace.security.sasl.scram_server import Known, UnknownUsers
from millrace.security.sasl.server_mechanism import Authenticated
from millrace.zk.entity_names import DEFAULT, decode_name, encode_name

logger = logging.getLogger(__name__)

USERS = "users/"
KEY_BYTES = 64

ClientConfigs = Mapping[str, Mapping[str, str]]
FindToken = Callable[[str, str], Known | None]  # by mechanism and token id


class Table(NamedTuple):
    """The credentials of one mechanism, by user."""

    known: Mapping[str, ScramCredential]
    unknown: UnknownUsers


def user_entity(user: str) -> str:
    """Returns the key of a user in `MetadataImage.client_configs`."""
    return USERS + encode_name(user)


def users_of(configs: ClientConfigs) -> dict[str, Mapping[str, str]]:
    """Returns the properties of each user by its name, without those of the default user and of users' clients."""
    nodes = {path.removeprefix(USERS): config for path, config in configs.items() if path.startswith(USERS)}
    named = {decode_name(node): config for node, config in nodes.items() if "/" not in node and node != DEFAULT}
    return {user: config for user, config in named.items() if user is not None}


class Credentials:
    """Looks users up, and delegation tokens, which prove themselves by SCRAM, too."""

    def __init__(self, configs: Callable[[], ClientConfigs], find_token: FindToken = lambda *_: None) -> None:
        """Takes what returns the newest properties of users, and what finds a token that is good now."""
        self._configs = configs
        self._find_token = find_token
        self._model = ScramCredential(
            nonce().encode(), secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES), MIN_ITERATIONS
        )
        self._parsed: ClientConfigs = {}
        self._tables = {mechanism: self._table({}) for mechanism in SCRAM_HASHES}

    def find(self, mechanism: str, name: str, *, is_by_token: bool) -> Known:
        """Returns what is known of a user, or of a token's id."""
        table = self._newest()[mechanism]
        made_up = table.unknown.credential(name)
        if is_by_token:
            return self._find_token(mechanism, name) or Known(made_up, None)
        authenticated, credential = Authenticated(name), table.known.get(name)  # made for every name, as all above
        is_known = credential is not None
        return Known(credential or made_up, authenticated if is_known else None)

    def _newest(self) -> Mapping[str, Table]:
        configs = self._configs()
        if configs is not self._parsed:
            users = users_of(configs)
            self._tables = {mechanism: self._table(_credentials(mechanism, users)) for mechanism in SCRAM_HASHES}
            self._parsed = configs
        return self._tables

    def _table(self, known: Mapping[str, ScramCredential]) -> Table:
        """Returns a table; an unknown user looks like the first one in the order of names."""
        return Table(known, UnknownUsers(known[min(known)] if known else self._model))


def _credentials(mechanism: str, users: Mapping[str, Mapping[str, str]]) -> dict[str, ScramCredential]:
    found = {}
    for user, config in users.items():
        text = config.get(mechanism)
        if text is not None:
            try:
                found[user] = parse_credential(text)
            except UnacceptableCredentialError as error:
                logger.warning("user %r can't log in by %s: %s", user, mechanism, error)
    return found
