"""The JSON of access control lists in ZooKeeper's nodes, in Apache Kafka's forms (docs/formats/metadata.md).

    /kafka-acl/[Type]/[name]              {"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",
                                          "operation":"Read","host":"*"}]}; that of a prefix is the same
    /kafka-acl-changes/acl_changes_[n]    TOPIC:orders, which is not JSON
    /kafka-acl-extended-changes/…         {"version":1,"resourceType":"TOPIC","name":"orders","patternType":"PREFIXED"}

Decoders raise ZooKeeperError for other documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from millrace.security.acls import Acl, AclOperation, PatternType, PermissionType, ResourcePattern
from millrace.zk.codec import decoded, dump

VERSION = 1


def encode_acls(acls: Iterable[Acl]) -> bytes:
    """Returns the data of a resource's node."""
    return dump({"version": VERSION, "acls": acl_fields(acls)})


def decode_acls(data: bytes) -> frozenset[Acl]:
    """Returns the entries in a resource's node."""
    return decoded(data, "list of access control", _acls)


def encode_acl_change(pattern: ResourcePattern) -> bytes:
    """Returns the data of a notification that the entries of a resource have changed."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return dump(
        {
            "version": VERSION,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def acl_fields(acls: Iterable[Acl]) -> list[dict[str, str]]:
    """Returns entries as JSON has them, in a fixed order."""
    return [
        {
            "principal": one.principal,
            "permissionType": one.permission.pascal,
            "operation": one.operation.pascal,
            "host": one.host,
        }
        for one in sorted(acls)
    ]


def acls_of(fields: Iterable[Mapping[str, str]]) -> frozenset[Acl]:
    """Returns the entries in JSON as `acl_fields` writes it; raises ValueError or KeyError for other JSON."""
    return frozenset(
        Acl(
            _principal(one["principal"]),
            one["host"],
            AclOperation.parse(one["operation"]),
            PermissionType.parse(one["permissionType"]),
        )
        for one in fields
    )


def _acls(fields: Mapping[str, Any]) -> frozenset[Acl]:
    if fields["version"] != VERSION:
        raise ValueError(f"version {fields['version']} is not known")
    return acls_of(fields["acls"])


def _principal(text: str) -> str:
    kind, _, name = text.partition(":")
    if not kind or not name:
        raise ValueError(f"{text!r} is no principal such as User:alice")
    return text
