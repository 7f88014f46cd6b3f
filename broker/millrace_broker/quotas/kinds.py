"""The properties that are quotas, and which entity may have them, as Apache Kafka's QuotaConfigs has them.

producer_byte_rate          long      bytes per second that are produced
consumer_byte_rate          long      bytes per second that are fetched
request_percentage          double    time of the event loop; 100 is all of it
controller_mutation_rate    double    partitions per second that are created and deleted
connection_creation_rate    int       connections per second from one address
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from millrace.config import MAX_INT, MAX_LONG


class QuotaKind(Enum):
    """What a quota of users and clients limits, by the property that sets it."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    CONTROLLER_MUTATION = "controller_mutation_rate"


class QuotaType(NamedTuple):
    """The type of a property's value: whole numbers have a greatest one."""

    name: str
    maximum: int | None = None


CONNECTION_CREATION_RATE = "connection_creation_rate"
DOUBLE = QuotaType("DOUBLE")
LONG = QuotaType("LONG", MAX_LONG)
INT = QuotaType("INT", MAX_INT)

CLIENT_QUOTAS = {
    QuotaKind.PRODUCE.value: LONG,
    QuotaKind.FETCH.value: LONG,
    QuotaKind.REQUEST.value: DOUBLE,
    QuotaKind.CONTROLLER_MUTATION.value: DOUBLE,
}
ADDRESS_QUOTAS = {CONNECTION_CREATION_RATE: INT}


def parse_quota(text: str) -> float | None:
    """Returns the value of a stored property; None where it is no number of 0 or more."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value >= 0 else None
