"""Version 0 of the APIs of access control lists, which clients before Kafka 2.0 send and `kio` has no schema for.

    filter       resource type i8, resource name string?, principal string?, host string?, operation i8, permission i8
    creation     resource type i8, resource name string, principal string, host string, operation i8, permission i8

    DescribeAcls   request: a filter     response: throttle time i32, error i16, message string?,
                                         resources [type i8, name string,
                                                    entries [principal, host string, operation, permission i8]]
    CreateAcls     request: [creation]   response: that of version 1
    DeleteAcls     request: [filter]     response: throttle time i32, results [error i16, message string?,
                                         matching [error i16, message string?, and a creation]]

The names of the fields are those of version 1, which also has pattern types. Here all are literal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millrace.errors import MalformedRequestError
from millrace.security.acls import PatternType
from millrace.wire.decoder import Decoder
from millrace.wire.encoder import Encoder, Parts

if TYPE_CHECKING:
    from millrace.wire.messages.delete_acls import DeleteAclsResponseFields
    from millrace.wire.messages.describe_acls import DescribeAclsResponseFields


class FilterAsked(NamedTuple):
    """A filter of access control entries."""

    resource_type_filter: int
    resource_name_filter: str | None
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    pattern_type_filter: int = PatternType.LITERAL


class AclToCreate(NamedTuple):
    """An entry to create."""

    resource_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission_type: int
    resource_pattern_type: int = PatternType.LITERAL


class CreateAclsRequest(NamedTuple):
    """A CreateAcls request."""

    creations: tuple[AclToCreate, ...]


class DeleteAclsRequest(NamedTuple):
    """A DeleteAcls request."""

    filters: tuple[FilterAsked, ...]


def decode_describe_acls(body: memoryview | bytes) -> FilterAsked:
    """Returns the request; raises MalformedRequestError for other bytes, as from the other decoders."""
    return _filter(Decoder(body, error=MalformedRequestError))


def decode_create_acls(body: memoryview | bytes) -> CreateAclsRequest:
    """Returns the request."""
    decoder = Decoder(body, error=MalformedRequestError)
    return CreateAclsRequest(tuple(_creation(decoder) for _ in range(decoder.array_length())))


def decode_delete_acls(body: memoryview | bytes) -> DeleteAclsRequest:
    """Returns the request."""
    decoder = Decoder(body, error=MalformedRequestError)
    return DeleteAclsRequest(tuple(_filter(decoder) for _ in range(decoder.array_length())))


def _filter(decoder: Decoder) -> FilterAsked:
    resource_type, name = decoder.int8(), decoder.nullable_string()
    principal, host = decoder.nullable_string(), decoder.nullable_string()
    return FilterAsked(resource_type, name, principal, host, decoder.int8(), decoder.int8())


def _creation(decoder: Decoder) -> AclToCreate:
    resource_type, name = decoder.int8(), decoder.string()
    principal, host = decoder.string(), decoder.string()
    return AclToCreate(resource_type, name, principal, host, decoder.int8(), decoder.int8())


def encode_describe_acls(fields: DescribeAclsResponseFields) -> Parts:
    """Returns the response, made from the fields of version 1."""
    out = Encoder(flexible=False)
    out.int32(0)
    out.int16(fields["error_code"])
    out.string(fields["error_message"])
    out.array_length(len(fields["resources"]))
    for resource in fields["resources"]:
        out.raw(bytes([resource["resource_type"]]))
        out.string(resource["resource_name"])
        out.array_length(len(resource["acls"]))
        for acl in resource["acls"]:
            _entry(out, acl["principal"], acl["host"], acl["operation"], acl["permission_type"])
    return out.parts


def encode_delete_acls(fields: DeleteAclsResponseFields) -> Parts:
    """Returns the response, made from the fields of version 1."""
    out = Encoder(flexible=False)
    out.int32(0)
    out.array_length(len(fields["filter_results"]))
    for result in fields["filter_results"]:
        out.int16(result["error_code"])
        out.string(result["error_message"])
        out.array_length(len(result["matching_acls"]))
        for acl in result["matching_acls"]:
            out.int16(acl["error_code"])
            out.string(acl["error_message"])
            out.raw(bytes([acl["resource_type"]]))
            out.string(acl["resource_name"])
            _entry(out, acl["principal"], acl["host"], acl["operation"], acl["permission_type"])
    return out.parts


def _entry(out: Encoder, principal: str, host: str, operation: int, permission_type: int) -> None:
    out.string(principal)
    out.string(host)
    out.raw(bytes((operation, permission_type)))
