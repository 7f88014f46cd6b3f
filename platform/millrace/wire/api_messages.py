"""The request and the response of an API, with the types that mypy checks them by.

    HEARTBEAT.decode_request(version, body).group_id          a request as a handler reads it: a protocol
    HEARTBEAT.encode_response(version, {"error_code": 0, …})  a response as a handler builds it: a typed dictionary
    connection.request(*HEARTBEAT.ask({"group_id": "g", …}))  a request as a client builds it: a typed dictionary

`millrace.wire.messages` has one `ApiMessages` for each API, and beside it a module for each with the types. Those are
for mypy alone, so import them under TYPE_CHECKING: at run time requests and responses are what `wire.cold` gives and
takes, and loading all types would take a tenth of a second.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, Never, TypeAlias, TypeVar

from millrace.turns import beside
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decoder, encode, encode_request
from millrace.wire.schema_writer import Fields

Request_co = TypeVar("Request_co", covariant=True)
Response_co = TypeVar("Response_co", covariant=True)
RequestFields_contra = TypeVar("RequestFields_contra", bound=Fields, contravariant=True)
ResponseFields_contra = TypeVar("ResponseFields_contra", bound=Fields, contravariant=True)

Message = TypeVar("Message")
MessageFields = TypeVar("MessageFields", bound=Fields)


class ApiMessages(Generic[Request_co, RequestFields_contra, Response_co, ResponseFields_contra]):
    """Encodes and decodes the requests and responses of one API, in every version that has a schema."""

    __slots__ = ("key",)

    def __init__(self, key: ApiKey) -> None:
        self.key = key

    def decode_request(self, version: int, body: memoryview | bytes, *, may_have_many: bool = False) -> Request_co:
        """Returns the decoded request; raises MalformedRequestError for invalid bytes, and for too many array elements.

        `may_have_many` allows more than `MAX_ELEMENTS` of them, for a controller's requests about all partitions.
        """
        decode = decoder(self.key, version, Direction.REQUEST, may_have_many=may_have_many)
        message: Request_co = beside(lambda: decode(body))
        return message

    def decode_response(self, version: int, body: memoryview | bytes) -> Response_co:
        """Returns the decoded response; raises MalformedRequestError for bytes that are no response of this version."""
        message: Response_co = decoder(self.key, version, Direction.RESPONSE)(body)
        return message

    def encode_request(self, version: int, fields: RequestFields_contra) -> bytes:
        """Returns the bytes of a request's body; raises InvalidRequestError for a value that its field can't hold."""
        return encode_request(self.key, version, fields)

    def encode_response(self, version: int, fields: ResponseFields_contra) -> bytes:
        """Returns the bytes of a response's body, without its header."""
        return encode(self.key, version, Direction.RESPONSE, fields)

    def ask(self, fields: RequestFields_contra) -> Ask[Response_co]:
        """Returns a request with these fields, for `Connection.request(*ask)`, which chooses the version."""
        return Ask(self, fields)


# An API of which one message matters: the request read, the response built, and what a client sends and reads.
Asked: TypeAlias = ApiMessages[Message, Never, object, Never]
Answered: TypeAlias = ApiMessages[object, Never, object, MessageFields]
Called: TypeAlias = ApiMessages[object, MessageFields, Message, Never]


class Ask(NamedTuple, Generic[Message]):
    """A request to send: its API, and its fields, which type checkers have compared with that API's."""

    api: Called[Any, Message]
    fields: Any
