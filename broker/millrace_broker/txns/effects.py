"""The effects that a transaction returns; it does nothing else.

    Respond       complete the request that holds the ticket
    StoreMetadata append the metadata, or a tombstone; `stored` is called once the in-sync replicas have it
    WriteMarkers  end the transaction in its partitions; `marked` is called once all of them have the marker
    CompleteLater call `marked` again after a while, as the last record could not be stored
    Forget        drop the transactional id

`StoreMetadata` comes last among the effects of one event.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from millrace.errors import ErrorCode
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.metadata import NOBODY, Producer, TransactionMetadata


class Result(NamedTuple):
    """The response to a request; where there is no error, `producer` is the one that may go on."""

    error: ErrorCode
    producer: Producer = NOBODY


class Ticket(Protocol):
    """The request that waits for a response, in the broker a future. A transaction only hands it back."""

    def done(self) -> bool:
        """Returns whether the request was answered, or its client is gone."""
        ...

    def set_result(self, result: Result, /) -> None:
        """Sends the response."""
        ...


class Respond(NamedTuple):
    """The result of the request that holds the ticket."""

    ticket: Ticket
    result: Result


class StoreMetadata(NamedTuple):
    """What is to be stored, None for a tombstone. The transaction knows by `outcome` what it was for."""

    metadata: TransactionMetadata | None
    outcome: object


class WriteMarkers(NamedTuple):
    """The decision, which every partition of the transaction is to have as a marker."""

    producer: Producer
    partitions: frozenset[TopicPartition]
    is_commit: bool


class CompleteLater(NamedTuple):
    """The last record is to be tried again."""


class Forget(NamedTuple):
    """The end of a transactional id."""


Effect = Respond | StoreMetadata | WriteMarkers | CompleteLater | Forget
Effects = list[Effect]
