"""The SCRAM credentials of users, as the newest image of the cluster has them (`/config/users/[user]` in ZooKeeper).

An unknown name gets a credential that is made up (`UnknownUsers`), so that nobody learns which users exist. Making it
up costs the same for every name. Credentials are parsed when an image brings them, and not while somebody waits.

A request alters credentials (KIP-554); each user succeeds or fails by itself.

    no name                                        UNACCEPTABLE_CREDENTIAL
    another mechanism                              UNSUPPORTED_SASL_MECHANISM
    fewer than 4096 iterations, or above 16384     UNACCEPTABLE_CREDENTIAL
    one mechanism of a user twice                  DUPLICATE_RESOURCE
    deletion of a credential that does not exist   RESOURCE_NOT_FOUND

A client sends the salted password, never the password itself.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millrace.errors import (
    DuplicateResourceError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from millrace.security.sasl.names import Authenticated
from millrace.security.sasl.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_HASHES,
    SCRAM_TYPES,
    Known,
    ScramCredential,
    UnknownUsers,
    credential_of,
    credential_text,
    new_nonce,
    parse_credential,
)
from millrace.turns import each
from millrace.zk.paths import DEFAULT, decode_name, encode_name

logger = logging.getLogger(__name__)

USERS = "users/"
KEY_BYTES = 64

ClientConfigs = Mapping[str, Mapping[str, str]]
FindToken = Callable[[str, str], Known | None]  # by mechanism and token id


class Table(NamedTuple):
    """The SCRAM credentials of one mechanism by user, and what makes up those of unknown users."""

    known: Mapping[str, ScramCredential]
    unknown: UnknownUsers


def user_entity(user: str) -> str:
    """Returns the key of a user in `MetadataImage.client_configs`, like `users/alice`."""
    return USERS + encode_name(user)


def users_of(configs: ClientConfigs) -> dict[str, Mapping[str, str]]:
    """Returns the properties of each user by name, without those of the default user and of a user's clients."""
    nodes = {path.removeprefix(USERS): config for path, config in configs.items() if path.startswith(USERS)}
    named = {decode_name(node): config for node, config in nodes.items() if "/" not in node and node != DEFAULT}
    return {user: config for user, config in named.items() if user is not None}


class Credentials:
    """Finds SCRAM credentials: those of users, and those of delegation tokens, which also log in by SCRAM."""

    def __init__(self, configs: Callable[[], ClientConfigs], find_token: FindToken = lambda *_: None) -> None:
        """Takes what returns the newest client configurations, and what finds the credential of a token by its id."""
        self._configs = configs
        self._find_token = find_token
        self._model = ScramCredential(
            new_nonce().encode(), secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES), MIN_ITERATIONS
        )
        self._parsed: ClientConfigs = {}
        self._tables = {mechanism: self._table({}) for mechanism in SCRAM_HASHES}

    def find(self, mechanism: str, name: str, *, is_by_token: bool) -> Known:
        """Returns the credential of a user or, with `is_by_token`, of a token id, and who then has logged in.

        For an unknown name the credential is made up, so that its existence can't be probed, and nobody has logged in.
        """
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
        """Returns a table of these credentials; those made up for unknown users look like the first user's."""
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


@dataclass(frozen=True, slots=True)
class Deletion:
    """A SCRAM credential to delete; `mechanism` is the protocol's number."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A SCRAM credential to add or replace; `mechanism` is the protocol's number."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


Change = Deletion | Upsertion


def by_user(changes: Sequence[Change]) -> dict[str, list[Change]]:
    """Returns the changes by user, each user's in the order of the request."""
    users: dict[str, list[Change]] = {}
    for one in each(changes):
        users.setdefault(one.user, []).append(one)
    return users


def altered(config: Mapping[str, str], changes: Sequence[Change]) -> Mapping[str, str]:
    """Returns a user's properties with all changes made. Raises a SecurityError if any of them is wrong."""
    for one in each(changes):
        _check(one)
    if max(Counter(one.mechanism for one in changes).values()) > 1:
        raise DuplicateResourceError("a credential of a user can't be altered twice in one request")
    changed = dict(config)
    for one in changes:
        mechanism = SCRAM_TYPES[one.mechanism]
        if isinstance(one, Upsertion):
            credential = credential_of(mechanism, one.salted_password, one.salt, one.iterations)
            changed[mechanism] = credential_text(credential)
        elif changed.pop(mechanism, None) is None:
            raise ResourceNotFoundError(f"Attempt to delete a user credential that does not exist: {mechanism}")
    return changed


def _check(change: Change) -> None:
    if not change.user:
        raise UnacceptableCredentialError("the name of a user can't be empty")
    if change.mechanism not in SCRAM_TYPES:
        raise UnsupportedSaslMechanismError(f"the SCRAM mechanism {change.mechanism} is not known")
    if isinstance(change, Upsertion):
        if change.iterations < MIN_ITERATIONS:
            raise UnacceptableCredentialError(f"Too few iterations: {change.iterations}, at least {MIN_ITERATIONS}")
        if change.iterations > MAX_ITERATIONS:
            raise UnacceptableCredentialError(f"Too many iterations: {change.iterations}, at most {MAX_ITERATIONS}")
