"""Clients of a Kafka-compatible cluster: Millrace, Apache Kafka 0.11 and newer, and others.

    with Cluster("127.0.0.1:9092") as cluster:
        first_offset = SyncProducer(cluster).send("events", 0, [NewRecord(b"hello")])
        data = SimpleConsumer(cluster).fetch("events", 0, first_offset)

A cluster, and what is made from it, belongs to one thread.
"""

from millrace.client.access import EntityQuotas, Quotas, Users
from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.configs import Configs, Property, ResourceKind
from millrace.client.fetched import FetchedData
from millrace.client.groups import Groups
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.client.metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata
from millrace.client.simple_consumer import SimpleConsumer
from millrace.client.sync_producer import SyncProducer
from millrace.client.topic_reader import read_topic

__all__ = [
    "Admin",
    "BrokerMetadata",
    "Cluster",
    "ClusterMetadata",
    "Configs",
    "EntityQuotas",
    "FetchedData",
    "Groups",
    "LogOffsets",
    "PartitionMetadata",
    "Property",
    "Quotas",
    "ResourceKind",
    "SimpleConsumer",
    "SyncProducer",
    "TopicMetadata",
    "Users",
    "read_log_offsets",
    "read_topic",
]
