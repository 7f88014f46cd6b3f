"""What a member reads of its group in ZooKeeper, and who is to consume what according to it."""

from __future__ import annotations

import logging

from millrace.client.consumer.assignment import STRATEGIES, Assignment
from millrace.client.consumer.config import ConsumerConfig
from millrace.client.consumer.registration import Registration, decode_registration
from millrace.errors import ClusterError, ZooKeeperError
from millrace.security.protocols import SecurityProtocol
from millrace.zk import paths
from millrace.zk.brokers import read_brokers
from millrace.zk.codec import decode_topic
from millrace.zk.session import ZooKeeperSession

logger = logging.getLogger(__name__)


def read_assignment(session: ZooKeeperSession, config: ConsumerConfig) -> Assignment:
    """Reads members, brokers and topics, each with a watch, and returns the owner of every partition."""
    registrations = _registrations(session, config.group_id)
    session.children(paths.BROKER_IDS, watch=True)
    existing = sorted(session.children(paths.TOPICS, watch=True))
    exclude = config.exclude_internal_topics
    subscriptions = {member: one.topics(existing, exclude_internal=exclude) for member, one in registrations.items()}
    topics = sorted({topic for subscribed in subscriptions.values() for topic in subscribed})
    found = session.get_many([paths.topic(topic) for topic in topics], watch=True)
    brokers = {
        topic: [replicas[0] for replicas in decode_topic(data).replicas]
        for topic, data in zip(topics, found, strict=True)
        if data is not None
    }
    return STRATEGIES[config.partition_assignment_strategy](subscriptions, brokers)


def read_bootstrap(session: ZooKeeperSession, protocol: SecurityProtocol) -> str:
    """Returns where the live brokers listen for the protocol, with commas between.

    Raises ClusterError where none does.
    """
    brokers = read_brokers(session, security_protocol=protocol.name)
    if not brokers:
        raise ClusterError("no broker is registered in ZooKeeper")
    return ",".join(map(str, brokers))


def _registrations(session: ZooKeeperSession, group_id: str) -> dict[str, Registration]:
    members = sorted(session.children(paths.consumer_ids(group_id), watch=True))
    found = session.get_many([paths.consumer_id(group_id, member) for member in members])
    registrations: dict[str, Registration] = {}
    for member, data in zip(members, found, strict=True):
        if data is None:
            continue
        try:
            registrations[member] = decode_registration(data)
        except ZooKeeperError as error:  # every member leaves it out, so that all agree; it can own nothing of theirs
            logger.warning("%s is left out: %s", paths.consumer_id(group_id, member), error)
    return registrations
