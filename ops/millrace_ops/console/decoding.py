"""Decodes values by a schema registry, without asking it again and again for what it does not have.

    a schema that is not there or can't be used    its id is not asked for again for REMEMBERED_S
    a registry that can't be reached               it is not asked at all for REMEMBERED_S

Values that are not framed but look framed, each with another schema id, would otherwise make a page ask for every
record, and a registry that is down would hold up every page.
"""

from __future__ import annotations

from collections import OrderedDict

from millrace.clock import Clock
from millrace.errors import InvalidRecordError, MillraceError
from millrace.json_values import JsonValue
from millrace_ops.console.values import FRAME_BYTES, Decoder
from millrace_pipelines.warehouse.errors import RegistryError, SchemaError

REMEMBERED_S = 60.0
MAX_REMEMBERED = 1_000
EVERY_SCHEMA = b""


class RememberingDecoder:
    """A decoder that keeps the errors of another decoder for REMEMBERED_S, and raises them again."""

    def __init__(self, decoder: Decoder, clock: Clock) -> None:
        self._decoder = decoder
        self._clock = clock
        self._failures: OrderedDict[bytes, tuple[float, MillraceError]] = OrderedDict()

    def decode(self, value: bytes) -> JsonValue:
        """Returns the value as JSON has it; raises what the other decoder raises, or has raised for its schema."""
        schema = value[:FRAME_BYTES]
        for one in (EVERY_SCHEMA, schema):
            until_s, failure = self._failures.get(one, (0.0, None))
            if failure is not None and self._clock.monotonic_s() < until_s:
                raise failure
        try:
            return self._decoder.decode(value)
        except RegistryError as error:
            self._remember(EVERY_SCHEMA, error)
            raise
        except InvalidRecordError as error:
            if isinstance(error.__cause__, SchemaError):
                self._remember(schema, error)
            raise

    def _remember(self, schema: bytes, failure: MillraceError) -> None:
        self._failures.pop(schema, None)
        self._failures[schema] = self._clock.monotonic_s() + REMEMBERED_S, failure
        if len(self._failures) > MAX_REMEMBERED:
            self._failures.popitem(last=False)
