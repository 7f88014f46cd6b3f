"""Encodes responses, and counts their errors by API and code, as Kafka's metric ErrorsPerSec does.

`respond` searches the message for error codes. A handler that encodes its response by hand passes them to
`count_errors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from millrace.times import SECOND_MS
from millrace.turns import beside, each
from millrace.wire.api import ApiKey
from millrace.wire.api_messages import Answered, MessageFields
from millrace.wire.encoder import Parts
from millrace.wire.schema_writer import Fields
from millrace_broker.handlers.api import Services
from millrace_broker.replication.purgatory import settle

Result = TypeVar("Result")

FEW = 100  # entries that are looked through without a pause
ERROR_CODES = ("error_code", "partition_error_code")


def respond(services: Services, api: Answered[MessageFields], version: int, fields: MessageFields) -> Parts:
    """Returns the parts of a response that `api` encodes from its fields, and counts the error codes in these."""
    count_errors(services, api.key, error_codes(fields))
    return [beside(lambda: api.encode_response(version, fields))]


def respond_later(parts: Parts, delay_ms: int) -> asyncio.Future[Parts]:
    """Returns a future that gets the response's parts after a delay, which slows down those who guess passwords."""
    loop = asyncio.get_running_loop()
    later: asyncio.Future[Parts] = loop.create_future()
    loop.call_later(delay_ms / SECOND_MS, _give, later, parts)
    return later


def respond_once_known(ticket: asyncio.Future[Result], write: Callable[[Result], Parts]) -> asyncio.Future[Parts]:
    """Returns the future of the response that `write` makes of the result of `ticket`, a future that is not done yet.

    Responses are sent in the order in which their tickets are done, over all connections; tasks would respond in the
    order in which they began to wait. To cancel the response cancels the ticket.
    """
    later: asyncio.Future[Parts] = asyncio.get_running_loop().create_future()

    ticket.add_done_callback(lambda known: settle(later, lambda: write(known.result())))
    later.add_done_callback(lambda done: ticket.cancel() if done.cancelled() else None)
    return later


def _give(later: asyncio.Future[Parts], parts: Parts) -> None:
    if not later.done():  # it is cancelled where the connection has ended
        later.set_result(parts)


def count_errors(services: Services, api_key: ApiKey, codes: Iterable[int]) -> None:
    """Adds the error codes of one response to `services.errors`; NONE is not counted."""
    for code in each(codes):
        if code:
            services.errors[api_key, code] += 1


def error_codes(fields: Fields) -> Iterator[int]:
    """Yields every error code in a response's fields, also in nested structures."""
    for name, value in fields.items():
        if name in ERROR_CODES:
            yield value
        elif isinstance(value, Mapping):
            yield from error_codes(value)
        elif isinstance(value, list | tuple):
            for one in each(value) if len(value) > FEW else value:
                if isinstance(one, Mapping):
                    yield from error_codes(one)
