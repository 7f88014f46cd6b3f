"""Every API that is served. What is not listed here is neither advertised nor answered."""

from __future__ import annotations

from millrace.wire.api import ApiKey
from millrace.wire.cold import warm
from millrace_broker.handlers import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
)
from millrace_broker.handlers.api import Api

APIS: dict[int, Api] = {
    api.key: api
    for api in (
        k00_produce.API,
        k01_fetch.API,
        k02_list_offsets.API,
        k03_metadata.API,
        k10_find_coordinator.API,
        k18_api_versions.API,
        k19_create_topics.API,
        k20_delete_topics.API,
        k22_init_producer_id.API,
        k23_offset_for_leader_epoch.API,
    )
}

# What the first requests of librdkafka and of Apache Kafka's clients ask for; other codecs are made when needed.
_FIRST_ASKED = (
    (ApiKey.API_VERSIONS, 3),
    (ApiKey.API_VERSIONS, 4),
    (ApiKey.METADATA, 12),
    (ApiKey.METADATA, 13),
    (ApiKey.INIT_PRODUCER_ID, 4),
    (ApiKey.INIT_PRODUCER_ID, 5),
    (ApiKey.PRODUCE, 10),
    (ApiKey.PRODUCE, 13),
    (ApiKey.FETCH, 11),
    (ApiKey.FETCH, 18),
    (ApiKey.FIND_COORDINATOR, 6),
)


def warm_up() -> None:
    """Make the codecs that the first clients will need; for a worker thread, while the broker serves already."""
    for key, version in _FIRST_ASKED:
        warm(key, version)
