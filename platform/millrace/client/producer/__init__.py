"""The producer: records in from any thread, batches out to the brokers that lead their partitions.

send ─► encoder ─► partitioner ─► batch of the partition ─► sender's thread ─► leader ─► delivery report

settings      properties               plugins, events    what an application plugs in
producer      `Producer` itself        accumulator        batches that fill, bounded, in their order
routes        metadata, ZooKeeper      sender, link       requests and answers
transactions  their states             transaction_…      their requests, their errors
"""

from millrace.client.groups import GroupMetadata
from millrace.client.producer.batch import Delivery, DeliveryReport, ProducerRecord
from millrace.client.producer.events import CallbackHandler, EventHandler
from millrace.client.producer.plugins import (
    BytesEncoder,
    Encoder,
    JsonEncoder,
    Partitioner,
    RandomPartitioner,
    StringEncoder,
)
from millrace.client.producer.producer import Producer
from millrace.client.producer.transaction_errors import (
    FatalTransactionError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionError,
    TransactionFailedError,
    TransactionStateError,
    TransactionTimeoutError,
)

__all__ = [
    "BytesEncoder",
    "CallbackHandler",
    "Delivery",
    "DeliveryReport",
    "Encoder",
    "EventHandler",
    "FatalTransactionError",
    "GroupMetadata",
    "JsonEncoder",
    "Partitioner",
    "Producer",
    "ProducerFencedError",
    "ProducerRecord",
    "RandomPartitioner",
    "StringEncoder",
    "TransactionAbortedError",
    "TransactionError",
    "TransactionFailedError",
    "TransactionStateError",
    "TransactionTimeoutError",
]
