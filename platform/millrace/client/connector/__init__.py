"""Consumer groups that ZooKeeper coordinates: `ConsumerConnector` and what it is made of (docs/consumer-groups.md)."""

from millrace.client.connector.assignment import Partition
from millrace.client.connector.config import ConsumerConfig
from millrace.client.connector.connector import ConsumerConnector
from millrace.client.connector.errors import (
    ConsumerIdTakenError,
    ConsumerTimeoutError,
    GroupHasMembersError,
    OwnershipLostError,
    RebalanceFailedError,
)
from millrace.client.connector.events import Kind, OwnershipEvent
from millrace.client.connector.streams import ConsumerStream, Message

__all__ = [
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerIdTakenError",
    "ConsumerStream",
    "ConsumerTimeoutError",
    "GroupHasMembersError",
    "Kind",
    "Message",
    "OwnershipEvent",
    "OwnershipLostError",
    "Partition",
    "RebalanceFailedError",
]
