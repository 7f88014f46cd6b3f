"""Access control lists in ZooKeeper's JSON, as Kafka 3.9 writes it."""

import json

import pytest

from millrace.errors import ZooKeeperError
from millrace.security.acls import Acl, AclOperation, PatternType, PermissionType, ResourcePattern, ResourceType
from millrace.zk import paths
from millrace.zk.codec import decode_acls, encode_acl_change, encode_acls

READ = Acl("User:alice", "*", AclOperation.READ, PermissionType.ALLOW)
DENY = Acl("User:CN=b,O=x", "10.0.0.1", AclOperation.ALTER, PermissionType.DENY)
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "app-", PatternType.PREFIXED)


def test_entries_are_kafkas_json():
    assert json.loads(encode_acls({READ, DENY})) == {
        "version": 1,
        "acls": [
            {"principal": "User:CN=b,O=x", "permissionType": "Deny", "operation": "Alter", "host": "10.0.0.1"},
            {"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"},
        ],
    }  # fmt: skip
    assert decode_acls(encode_acls({READ, DENY})) == {READ, DENY}


@pytest.mark.parametrize("document", [
    b"",
    b'{"version":2,"acls":[]}',
    b'{"version":1}',
    b'{"version":1,"acls":[{"principal":"alice","permissionType":"Allow","operation":"Read","host":"*"}]}',
    b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Maybe","operation":"Read","host":"*"}]}',
    b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Look","host":"*"}]}',
    b'{"version":1,"acls":[{"permissionType":"Allow","operation":"Read","host":"*"}]}',
])  # fmt: skip
def test_another_document_is_refused(document):
    with pytest.raises(ZooKeeperError, match="list of access control"):
        decode_acls(document)


def test_notifications_are_kafkas():
    assert encode_acl_change(ORDERS) == b"TOPIC:orders"
    assert json.loads(encode_acl_change(PREFIX)) == {
        "version": 1,
        "resourceType": "TRANSACTIONAL_ID",
        "name": "app-",
        "patternType": "PREFIXED",
    }


def test_resources_lie_where_kafka_has_them():
    assert paths.acls(ORDERS) == "/kafka-acl/Topic/orders"
    assert paths.acls(PREFIX) == "/kafka-acl-extended/prefixed/TransactionalId/app-"
    assert len(paths.ACL_FOLDERS) == 12
