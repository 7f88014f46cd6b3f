"""Every API names what it asks for, and a broker with an authorizer does not start with one that doesn't."""

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest

from millrace.errors import ClusterAuthorizationError, ErrorCode, InvalidConfigError
from millrace.security.acls import AclOperation, ResourceType
from millrace.wire.api import ApiKey
from millrace.wire.messages import (
    ALTER_CLIENT_QUOTAS,
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from millrace_broker.handlers.api import OPERATIONS, UNGUARDED, Guard, Request, authorized_operations
from millrace_broker.handlers.cluster_registry import CLUSTER_APIS
from millrace_broker.handlers.registry import APIS, check_guarded
from millrace_broker.security.acls.authorizer import Access
from millrace_broker.security.client_session import ClientSession

EVERY_API = {**APIS, **CLUSTER_APIS}
BEFORE_AUTHENTICATION = ["SASL_HANDSHAKE", "API_VERSIONS", "SASL_AUTHENTICATE"]
BY_SECRET = ["RENEW_DELEGATION_TOKEN", "EXPIRE_DELEGATION_TOKEN"]
BETWEEN_BROKERS = (4, 5, 6, 7, 24, 27, 56, 67, 1, 23)
SESSION = ClientSession("10.0.0.1")
GUARD = Guard(ApiKey.METADATA, AclOperation.DESCRIBE, ResourceType.CLUSTER)


class Recording:
    """An authorizer that allows some operations, and an audit log that keeps what it is told."""

    tells_allowed = True

    def __init__(self, *allowed):
        self.allowed, self.noted = allowed, []

    def authorize(self, session, operation, resource_type, name):
        return operation in self.allowed

    def authorize_by_resource_type(self, session, operation, resource_type):
        return operation in self.allowed

    def take(self, acls):
        pass

    def note(self, session, operation, resource_type, name, request, *, permitted):
        self.noted.append((operation, resource_type, name, request, permitted))


def services(*allowed):
    recording = Recording(*allowed)
    return SimpleNamespace(authorizer=Access(recording, recording)), recording


def test_every_api_has_guards():
    check_guarded(EVERY_API)
    unguarded = [ApiKey(key).name for key, api in EVERY_API.items() if not api.guards]
    assert sorted(unguarded) == sorted(BEFORE_AUTHENTICATION + BY_SECRET)
    for key, api in EVERY_API.items():
        assert {guard.api for guard in api.guards} <= {key}


def test_an_api_without_guards_stops_the_start():
    api = APIS[ApiKey.METADATA]._replace(guards=None)
    with pytest.raises(InvalidConfigError, match="METADATA has no guards"):
        check_guarded({**APIS, ApiKey.METADATA: api})
    check_guarded({**APIS, ApiKey.METADATA: api._replace(guards=UNGUARDED)})


@pytest.mark.parametrize("key", BETWEEN_BROKERS)
def test_what_brokers_ask_one_another_is_an_action_of_the_cluster(key):
    assert (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER) in {
        (guard.operation, guard.resource_type) for guard in EVERY_API[key].guards
    }


def test_without_an_authorizer_everything_is_permitted():
    assert GUARD.permits(SimpleNamespace(authorizer=None), SESSION)
    assert GUARD.permits_on_any(SimpleNamespace(authorizer=None), SESSION)


def test_what_is_denied_is_an_error_of_its_type_and_in_the_audit_log():
    asked, recording = services()
    with pytest.raises(ClusterAuthorizationError):
        GUARD.check(asked, SESSION)
    assert recording.noted == [(AclOperation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster", "METADATA", False)]
    assert not GUARD._replace(is_silent=True).permits(asked, SESSION)
    assert len(recording.noted) == 1


def test_authorized_operations_are_those_that_are_allowed_and_nobody_is_told():
    asked, recording = services(AclOperation.READ, AclOperation.DESCRIBE)
    bits = authorized_operations(asked, SESSION, ResourceType.TOPIC, "orders")
    assert bits == (1 << AclOperation.READ) | (1 << AclOperation.DESCRIBE)
    assert recording.noted == []
    everything = authorized_operations(SimpleNamespace(authorizer=None), SESSION, ResourceType.GROUP, "g")
    assert everything == sum(1 << one for one in OPERATIONS[ResourceType.GROUP])


ENTITY = {"entity_type": "user", "entity_name": "alice"}
ALTERATION = {"entity": [ENTITY], "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]}


def asked_of_the_cluster(api, fields):
    """Returns the answer to a client that may do nothing, and which operations were denied to it."""
    denied, recording = services()
    denied.errors = Counter()

    async def ask():
        body = memoryview(api.encode_request(0, fields))
        reply = EVERY_API[api.key].handle(denied, Request(0, "c", body, SESSION))
        return await reply if isinstance(reply, asyncio.Future) else reply

    denied.configs = None
    return api.decode_response(0, b"".join(map(bytes, asyncio.run(ask())))), [one[0] for one in recording.noted]


@pytest.mark.parametrize(
    ("api", "fields", "operation", "results"),
    [
        (DESCRIBE_CLIENT_QUOTAS, {"components": (), "strict": False}, AclOperation.DESCRIBE_CONFIGS, None),
        (ALTER_CLIENT_QUOTAS, {"entries": [ALTERATION], "validate_only": False}, AclOperation.ALTER_CONFIGS, "entries"),
        (DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None}, AclOperation.DESCRIBE, None),
        (
            ALTER_USER_SCRAM_CREDENTIALS,
            {"deletions": [{"name": "alice", "mechanism": 1}], "upsertions": ()},
            AclOperation.ALTER,
            "results",
        ),
    ],
    ids=lambda one: getattr(getattr(one, "key", None), "name", ""),
)
def test_quotas_and_credentials_are_the_clusters(api, fields, operation, results):
    answer, denied = asked_of_the_cluster(api, fields)
    told = [answer] if results is None else getattr(answer, results)
    assert [one.error_code for one in told] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert denied == [operation]
