"""What a cluster refuses the mirror, as a sentence: which side it is, which right is lacking on what, and the way on.

    with needing("source east", topic="DescribeConfigs on topic orders"):
        configs.describe_topics(["orders"])

A broker says of a refusal what kind of resource it is about; which right on it, the one who asks knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millrace.client import Cluster
from millrace.client.metadata import ClusterMetadata
from millrace.errors import (
    BrokerError,
    BrokerUnreachableError,
    ErrorCode,
    InvalidConfigError,
    MillraceError,
    SecurityError,
)

TARGET = "the target"
ON_CLUSTER = "on the cluster"
OTHER_LISTENER = (
    "; perhaps its listener wants TLS or a login, which security.protocol says, or it is no broker of Kafka's protocol"
)
KINDS: dict[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional_id",
}


class DeniedError(BrokerError):
    """A cluster does not let the mirror do what it has to do; says which right it lacks."""


def side_of(source: str) -> str:
    """Returns how sentences name a source."""
    return f"source {source}"


def explained(error: MillraceError, side: str, **rights: str) -> MillraceError:
    """Returns an error as a side's; `rights` are those that its request needs, by the kind of resource."""
    if isinstance(error, DeniedError):
        return error
    cause = error.__cause__ if isinstance(error.__cause__, BrokerError) else error
    if not isinstance(cause, BrokerError):
        return _of_side(error, side)
    right = rights.get(KINDS.get(cause.broker_code, ""))
    if right is None:
        return error
    return DeniedError(
        cause.broker_code,
        f"{side}: the mirror's user lacks the right {right}; give it there with millrace acls add, or with kafka-acls",
    )


def hidden(metadata: ClusterMetadata, topic: str, side: str) -> MillraceError | None:
    """Returns why a topic can't be seen, where that is for want of a right."""
    found = metadata.topics.get(topic)
    if found is None or found.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return None
    return explained(BrokerError(found.error_code, topic), side, topic=f"Read on topic {topic}")


def reach(cluster: Cluster, side: str) -> None:
    """Asks a cluster who it is; raises what keeps the mirror from it, with the side's name."""
    try:
        cluster.metadata([])
    except BrokerError:
        raise
    except MillraceError as error:
        told = f"{side}: {error}"
        is_closed = isinstance(error, BrokerUnreachableError) and "closed" in told
        raise type(error)(told + OTHER_LISTENER if is_closed else told) from error


@contextmanager
def needing(side: str, **rights: str) -> Iterator[None]:
    """Makes the context in which errors are told as a side's, with the rights that requests need there."""
    try:
        yield
    except MillraceError as error:
        told = explained(error, side, **rights)
        if told is error:
            raise
        raise told from error


def is_lasting(error: BaseException) -> bool:
    """Returns whether it stays so until somebody changes rights, credentials or settings."""
    if isinstance(error, BrokerError):
        return error.broker_code in KINDS
    return isinstance(error, SecurityError | InvalidConfigError) and not error.retriable


def _of_side(error: MillraceError, side: str) -> MillraceError:
    """Returns an error of a login, or of properties, with the side's name; any other one as it is."""
    if not is_lasting(error) or str(error).startswith(side):
        return error
    return type(error)(f"{side}: {error}")
