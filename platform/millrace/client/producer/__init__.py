"""The producer: records in from any thread, batches out to the brokers that lead their partitions.

send ─► encoder ─► partitioner ─► batch of the partition ─► sender's thread ─► leader ─► delivery report

settings      properties               encoders, partitioners, events   what an application plugs in
producer      `Producer` itself        accumulator                      batches that fill, bounded
partition     order and sequence       sender, link                     requests and answers
routes        metadata                 discovery                        brokers by ZooKeeper
"""

from millrace.client.producer.encoders import BytesEncoder, Encoder, JsonEncoder, StringEncoder
from millrace.client.producer.events import CallbackHandler, EventHandler
from millrace.client.producer.message import Delivery, DeliveryReport, ProducerRecord
from millrace.client.producer.partitioners import Partitioner, RandomPartitioner
from millrace.client.producer.producer import Producer

__all__ = [
    "BytesEncoder",
    "CallbackHandler",
    "Delivery",
    "DeliveryReport",
    "Encoder",
    "EventHandler",
    "JsonEncoder",
    "Partitioner",
    "Producer",
    "ProducerRecord",
    "RandomPartitioner",
    "StringEncoder",
]
