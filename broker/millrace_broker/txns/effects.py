"""What a transaction asks of its surroundings. It returns these and does nothing else.

    Answer        complete the request that holds the ticket
    Store         append what is kept, or a tombstone; `stored` is called once the in-sync replicas have it
    WriteMarkers  end the transaction in its partitions; `marked` is called once all of them have the marker
    CompleteLater the last record could not be stored: call `marked` again after a while
    Forget        the transactional id is known no more

`Store` comes last among the effects of one event.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from millrace.errors import ErrorCode
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.metadata import NOBODY, Producer, TransactionMetadata

Ticket = Any
"""Whoever waits for an answer; a transaction only hands it back. None: nobody does."""


class Result(NamedTuple):
    """How a request ended; the producer is who may go on, where there is no error."""

    error: ErrorCode
    producer: Producer = NOBODY


class Answer(NamedTuple):
    """The result of the request that holds the ticket."""

    ticket: Ticket
    result: Result


class Store(NamedTuple):
    """What is to be kept, None for nothing; `outcome` says to the transaction what it was for."""

    metadata: TransactionMetadata | None
    outcome: Any


class WriteMarkers(NamedTuple):
    """The decision, for every partition of the transaction."""

    producer: Producer
    partitions: frozenset[TopicPartition]
    is_commit: bool


class CompleteLater(NamedTuple):
    """Try again."""


class Forget(NamedTuple):
    """The end of a transactional id."""


Effect = Answer | Store | WriteMarkers | CompleteLater | Forget
Effects = list[Effect]
