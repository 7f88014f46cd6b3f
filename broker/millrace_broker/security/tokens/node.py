"""The JSON of a token, in the form that Apache Kafka has in `/delegation_token/tokens/[id]`.

    {"version":3,"owner":"User%3Aalice","tokenRequester":"User%3Abob","renewers":["User%3Acarol"],
     "issueTimestamp":1,"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"…"}

Principals are encoded as the names of users in paths are. Before version 3 there is no requester: it is the owner
(KIP-373).
"""

from __future__ import annotations

from typing import Any

from millrace.zk.codec import decoded, dump
from millrace.zk.entity_names import decode_name, encode_name
from millrace_broker.security.client_session import Principal
from millrace_broker.security.tokens.token import DelegationToken

VERSION = 3


def encode_token(token: DelegationToken) -> bytes:
    """Returns the data of a token's node."""
    return dump(
        {
            "version": VERSION,
            "owner": encode_name(str(token.owner)),
            "tokenRequester": encode_name(str(token.requester)),
            "renewers": [encode_name(str(one)) for one in token.renewers],
            "issueTimestamp": token.issue_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expiry_ms,
            "tokenId": token.token_id,
        }
    )


def decode_token(data: bytes) -> DelegationToken:
    """Returns the token in a node; raises ZooKeeperError for another document."""
    return decoded(data, "delegation token", _token)


def _token(fields: Any) -> DelegationToken:
    version = int(fields["version"])
    if not 0 < version <= VERSION:
        raise ValueError(f"version {version} is not known")
    return DelegationToken(
        token_id=str(fields["tokenId"]),
        owner=_principal(fields["owner"]),
        requester=_principal(fields["tokenRequester" if version == VERSION else "owner"]),
        renewers=tuple(map(_principal, fields["renewers"])),
        issue_ms=int(fields["issueTimestamp"]),
        max_ms=int(fields["maxTimestamp"]),
        expiry_ms=int(fields["expiryTimestamp"]),
    )


def _principal(text: str) -> Principal:
    kind, colon, name = (decode_name(text) or "").partition(":")
    if not (kind and colon):
        raise ValueError(f"{text!r} is no principal")
    return Principal(kind, name)
