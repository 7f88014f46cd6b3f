"""Alters users' SCRAM credentials as a request asks (KIP-554). Each user succeeds or fails by itself.

    no name                                        UNACCEPTABLE_CREDENTIAL
    another mechanism                              UNSUPPORTED_SASL_MECHANISM
    fewer than 4096 iterations, or above 16384     UNACCEPTABLE_CREDENTIAL
    one mechanism of a user twice                  DUPLICATE_RESOURCE
    deletion of a credential that does not exist   RESOURCE_NOT_FOUND

A client sends the salted password, never the password itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millrace.errors import (
    DuplicateResourceError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from millrace.security.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_TYPES, credential_of, credential_text
from millrace.turns import each


@dataclass(frozen=True, slots=True)
class Deletion:
    """A credential to remove; `mechanism` is the protocol's number."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A credential to make or replace; `mechanism` is the protocol's number."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


Change = Deletion | Upsertion


def by_user(changes: Sequence[Change]) -> dict[str, list[Change]]:
    """Returns what is asked for each user, in the order of the request."""
    users: dict[str, list[Change]] = {}
    for one in each(changes):
        users.setdefault(one.user, []).append(one)
    return users


def altered(config: Mapping[str, str], changes: Sequence[Change]) -> Mapping[str, str]:
    """Returns a user's properties after the changes. A SecurityError says why none of them is made."""
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
