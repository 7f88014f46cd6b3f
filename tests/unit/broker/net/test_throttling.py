"""Which requests are not recorded against the quotas of their client's time."""

from types import SimpleNamespace

import pytest

from millrace.security.acls import AclOperation
from millrace.wire.api import ApiKey
from millrace_broker.net.slot import AMONG_BROKERS, throttled
from millrace_broker.security.client_session import ClientSession

THROTTLE_MS = 70


class Rights:
    """The access of clients that may do these operations."""

    def __init__(self, *allowed):
        self._allowed = frozenset(allowed)

    def operations(self, session, operations, resource_type, name):
        return operations & self._allowed


def throttle_ms(api_key, access):
    quotas = SimpleNamespace(used=lambda client, seconds, now_ms: THROTTLE_MS)
    times = SimpleNamespace(started=0.0, handled=1.0)
    header = SimpleNamespace(client_id="c", size_bytes=1)
    slot = SimpleNamespace(times=times, headers=[header], api_key=api_key, version=0)
    services = SimpleNamespace(quotas=quotas, authorizer=access)
    return throttled(slot, [()], services, ClientSession("h"), 0)[1]


@pytest.mark.parametrize("api_key", sorted(AMONG_BROKERS), ids=lambda key: key.name)
def test_requests_among_brokers_are_exempt_where_the_client_may_act_for_the_cluster(api_key):
    assert throttle_ms(api_key, None) == 0
    assert throttle_ms(api_key, Rights(AclOperation.CLUSTER_ACTION)) == 0
    assert throttle_ms(api_key, Rights(AclOperation.ALTER)) == THROTTLE_MS


def test_others_are_recorded_whatever_the_client_may_do_and_fetch_by_its_handler():
    assert throttle_ms(ApiKey.METADATA, Rights(AclOperation.CLUSTER_ACTION)) == THROTTLE_MS
    assert throttle_ms(ApiKey.METADATA, None) == THROTTLE_MS
    assert throttle_ms(ApiKey.FETCH, Rights()) == 0
