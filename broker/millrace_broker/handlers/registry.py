"""The table of the APIs that the broker serves, by key; a request of any other closes its connection."""

from __future__ import annotations

from collections.abc import Mapping

from millrace.errors import InvalidConfigError
from millrace.wire.api import ApiKey
from millrace.wire.cold import warm
from millrace.wire.fetch import FOLLOWERS_VERSION
from millrace_broker.handlers import (
    acls,
    classic_members,
    client_quotas,
    cluster_descriptions,
    configs,
    consumer_groups,
    delegation_tokens,
    group_admin,
    k00_produce,
    k01_fetch,
    k03_metadata,
    k09_offset_fetch,
    k10_find_coordinator,
    k18_api_versions,
    log_dirs,
    log_offsets,
    mirrored_appends,
    offset_commits,
    reassignments,
    sasl,
    scram_credentials,
    topics,
    transaction_partitions,
    transactions,
)
from millrace_broker.handlers.api import Api

APIS: dict[int, Api] = {
    api.key: api
    for api in (
        k00_produce.API,
        k01_fetch.API,
        k03_metadata.API,
        k09_offset_fetch.API,
        k10_find_coordinator.API,
        k18_api_versions.API,
        mirrored_appends.API,
        *acls.APIS,
        *classic_members.APIS,
        *client_quotas.APIS,
        *cluster_descriptions.APIS,
        *configs.APIS,
        *consumer_groups.APIS,
        *delegation_tokens.APIS,
        *group_admin.APIS,
        *log_dirs.APIS,
        *log_offsets.APIS,
        *offset_commits.APIS,
        *reassignments.APIS,
        *sasl.APIS,
        *scram_credentials.APIS,
        *topics.APIS,
        *transaction_partitions.APIS,
        *transactions.APIS,
    )
}


def check_guarded(apis: Mapping[int, Api]) -> None:
    """Raises InvalidConfigError where an API has no guards (None): an authorizer would leave it open to everyone."""
    open_to_all = [ApiKey(key).name for key, api in apis.items() if api.guards is None]
    if open_to_all:
        raise InvalidConfigError(f"authorizer.class.name can't be obeyed: {', '.join(open_to_all)} has no guards")


# The first requests of librdkafka, of Apache Kafka's clients, and of followers, which a new leader should answer fast.
# Other codecs are made when they are needed.
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
    (ApiKey.FETCH, FOLLOWERS_VERSION),
    (ApiKey.FETCH, 18),
    (ApiKey.FIND_COORDINATOR, 6),
)


def warm_up() -> None:
    """Builds the encoders and decoders of clients' first requests; runs in a worker thread of a serving broker."""
    for key, version in _FIRST_ASKED:
        warm(key, version)
