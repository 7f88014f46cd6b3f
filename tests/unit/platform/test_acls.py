"""Names of access control lists, and which bindings a filter finds, as Kafka's AclBindingFilter does."""

import pytest

from millrace.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)

READ = Acl("User:alice", "*", AclOperation.READ, PermissionType.ALLOW)
DENY = Acl("User:bob", "10.0.0.1", AclOperation.ALL, PermissionType.DENY)
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
EVERY = ResourcePattern(ResourceType.TOPIC, "*")
PREFIX = ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED)
GROUP = ResourcePattern(ResourceType.GROUP, "orders")
ALL = (ORDERS, EVERY, PREFIX, GROUP)


@pytest.mark.parametrize(("text", "member"), [
    ("TransactionalId", ResourceType.TRANSACTIONAL_ID),
    ("transactional_id", ResourceType.TRANSACTIONAL_ID),
    ("IdempotentWrite", AclOperation.IDEMPOTENT_WRITE),
    ("CLUSTERACTION", AclOperation.CLUSTER_ACTION),
    ("deny", PermissionType.DENY),
])  # fmt: skip
def test_names_are_read_in_any_case(text, member):
    assert type(member).parse(text) is member


def test_a_name_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match="'Table': expected one of Topic, Group"):
        ResourceType.parse("Table")


def test_names_in_zookeeper_are_pascal_case():
    assert [one.pascal for one in (ResourceType.DELEGATION_TOKEN, AclOperation.ALL)] == ["DelegationToken", "All"]


@pytest.mark.parametrize(("wanted", "found"), [
    (AclFilter(), ALL),
    (AclFilter(ResourceType.TOPIC), (ORDERS, EVERY, PREFIX)),
    (AclFilter(ResourceType.TOPIC, "orders"), (ORDERS,)),
    (AclFilter(ResourceType.ANY, "orders"), (ORDERS, GROUP)),
    (AclFilter(ResourceType.TOPIC, "orders", PatternType.LITERAL), (ORDERS,)),
    (AclFilter(ResourceType.TOPIC, "orders", PatternType.PREFIXED), ()),
    (AclFilter(ResourceType.TOPIC, "orders", PatternType.MATCH), (ORDERS, EVERY, PREFIX)),
    (AclFilter(ResourceType.TOPIC, "or", PatternType.MATCH), (EVERY,)),
    (AclFilter(ResourceType.TOPIC, "ord", PatternType.PREFIXED), (PREFIX,)),
    (AclFilter(ResourceType.TOPIC, None, PatternType.PREFIXED), (PREFIX,)),
])  # fmt: skip
def test_a_filter_finds_resources(wanted, found):
    assert tuple(one for one in ALL if wanted.finds_resource(one)) == found


@pytest.mark.parametrize(("wanted", "found"), [
    (AclFilter(), (READ, DENY)),
    (AclFilter(principal="User:alice"), (READ,)),
    (AclFilter(host="*"), (READ,)),
    (AclFilter(operation=AclOperation.ALL), (DENY,)),
    (AclFilter(permission=PermissionType.ALLOW), (READ,)),
    (AclFilter(principal="User:alice", permission=PermissionType.DENY), ()),
])  # fmt: skip
def test_a_filter_finds_entries(wanted, found):
    assert tuple(one for one in (READ, DENY) if wanted.finds_acl(one)) == found


def test_a_filter_names_the_resources_that_it_does_not_have_to_search():
    assert AclFilter(ResourceType.TOPIC, "orders", PatternType.LITERAL).named_resources() == (ORDERS,)
    assert len(AclFilter(ResourceType.TOPIC, "orders").named_resources()) == 2
    for searching in (
        AclFilter(name="orders"),
        AclFilter(ResourceType.TOPIC),
        AclFilter(ResourceType.TOPIC, "o", PatternType.MATCH),
    ):
        assert searching.named_resources() == ()
