"""Consumer groups that ZooKeeper coordinates: `ConsumerConnector` and what it is made of (docs/consumer-groups.md)."""

from millrace.client.consumer.assignment import Partition
from millrace.client.consumer.config import ConsumerConfig
from millrace.client.consumer.connector import ConsumerConnector
from millrace.client.consumer.ownership import Kind, OwnershipEvent
from millrace.client.consumer.streams import ConsumerStream, Message
from millrace.errors import (
    ConsumerIdTakenError,
    ConsumerTimeoutError,
    GroupHasMembersError,
    OwnershipLostError,
    RebalanceFailedError,
)

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
