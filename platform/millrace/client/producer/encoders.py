"""How an application's values become bytes. Any object with an `encode(value)` will do; None stays None, a null."""

from __future__ import annotations

import json
from typing import Any, Protocol

from millrace.errors import InvalidRecordError


class Encoder(Protocol):
    """Makes the bytes of a value or a key."""

    def encode(self, data: Any) -> bytes:
        """Returns the bytes; any error it raises comes out of `send`."""
        ...


class BytesEncoder:
    """Bytes as they are: the default."""

    def encode(self, data: Any) -> bytes:
        """Returns the same bytes; raises InvalidRecordError for anything else."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidRecordError(f"{type(data).__name__} is not bytes: configure an encoder for it")
        return bytes(data)


class StringEncoder:
    """Text in UTF-8, or in another encoding."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def encode(self, data: Any) -> bytes:
        """Returns the text's bytes; raises InvalidRecordError for anything else."""
        if not isinstance(data, str):
            raise InvalidRecordError(f"{type(data).__name__} is not text")
        return data.encode(self._encoding)


class JsonEncoder:
    """Compact JSON in UTF-8."""

    def encode(self, data: Any) -> bytes:
        """Returns the document; raises InvalidRecordError for what JSON has no form for."""
        try:
            return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InvalidRecordError(f"no JSON can be made of a {type(data).__name__}: {error}") from error
