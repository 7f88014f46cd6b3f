"""The ids of topics and clusters: UUIDs, written as Kafka writes them.

As text an id is the URL-safe base64 of its 16 bytes without padding: 22 characters, in ZooKeeper's nodes, in
`meta.properties` and in `partition.metadata`. The protocol has the 16 bytes, all of them zero where there is no id
(KIP-516).
"""

from __future__ import annotations

import base64
from uuid import UUID

NO_TOPIC_ID = UUID(int=0)


def encode_id(value: UUID) -> str:
    """Returns a UUID as 22 characters of URL-safe base64, as Kafka writes topic ids."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_id(text: str) -> UUID:
    """Returns the UUID in text by `encode_id`; raises ValueError for other text."""
    return UUID(bytes=base64.b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True))
