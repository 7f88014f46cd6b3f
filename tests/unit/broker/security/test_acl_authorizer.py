"""Decisions by access control lists; tests/compat/test_kafkas_authorizer.py compares many with Kafka's own."""

import pytest

from millrace.errors import InvalidConfigError
from millrace.security.acls import Acl, AclOperation, PatternType, PermissionType, ResourcePattern, ResourceType
from millrace_broker.security.acls import acl_authorizer
from millrace_broker.security.acls.acl_authorizer import AclAuthorizer, super_users
from millrace_broker.security.client_session import ClientSession, Principal

ALICE = ClientSession("10.0.0.1", principal=Principal("User", "alice"))
BOB = ClientSession("10.0.0.2", principal=Principal("User", "bob"))
TOPIC, READ, WRITE, DESCRIBE = ResourceType.TOPIC, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


def entry(operation, permission=PermissionType.ALLOW, *, principal="User:alice", host="*"):
    return Acl(principal, host, operation, permission)


def on(name, *entries, pattern=PatternType.LITERAL):
    return {ResourcePattern(TOPIC, name, pattern): frozenset(entries)}


def authorizer(*resources, **options):
    one = AclAuthorizer(**options)
    one.take({pattern: entries for resource in resources for pattern, entries in resource.items()})
    return one


def deny(operation, **others):
    return entry(operation, PermissionType.DENY, **others)


CASES = [
    ("no entry at all", [], ALICE, READ, "orders", False),
    ("an entry", [on("orders", entry(READ))], ALICE, READ, "orders", True),
    ("another principal", [on("orders", entry(READ))], BOB, READ, "orders", False),
    ("everyone", [on("orders", entry(READ, principal="User:*"))], BOB, READ, "orders", True),
    ("another host", [on("orders", entry(READ, host="10.0.0.2"))], ALICE, READ, "orders", False),
    ("its host", [on("orders", entry(READ, host="10.0.0.1"))], ALICE, READ, "orders", True),
    ("another operation", [on("orders", entry(READ))], ALICE, WRITE, "orders", False),
    ("all operations", [on("orders", entry(AclOperation.ALL))], ALICE, WRITE, "orders", True),
    ("every topic", [on("*", entry(READ))], ALICE, READ, "orders", True),
    ("a prefix", [on("ord", entry(READ), pattern=PatternType.PREFIXED)], ALICE, READ, "orders", True),
    ("the name as a prefix", [on("orders", entry(READ), pattern=PatternType.PREFIXED)], ALICE, READ, "orders", True),
    ("a longer prefix", [on("orders-", entry(READ), pattern=PatternType.PREFIXED)], ALICE, READ, "orders", False),
    ("a literal is no prefix", [on("ord", entry(READ))], ALICE, READ, "orders", False),
    ("deny wins", [on("orders", entry(READ), deny(AclOperation.ALL))], ALICE, READ, "orders", False),
    ("deny by a prefix wins", [on("orders", entry(READ)), on("o", deny(READ), pattern=PatternType.PREFIXED)],
     ALICE, READ, "orders", False),
    ("reading implies describing", [on("orders", entry(READ))], ALICE, DESCRIBE, "orders", True),
    ("describing implies nothing", [on("orders", entry(DESCRIBE))], ALICE, READ, "orders", False),
    ("creating implies nothing", [on("orders", entry(AclOperation.CREATE))], ALICE, DESCRIBE, "orders", False),
    ("denying implies nothing", [on("orders", deny(READ), entry(WRITE))], ALICE, DESCRIBE, "orders", True),
    ("altering configs implies describing them", [on("orders", entry(AclOperation.ALTER_CONFIGS))],
     ALICE, AclOperation.DESCRIBE_CONFIGS, "orders", True),
]  # fmt: skip


@pytest.mark.parametrize(("resources", "session", "operation", "name", "permitted"), [
    pytest.param(*case, id=title) for title, *case in CASES
])  # fmt: skip
def test_entries_decide(resources, session, operation, name, permitted):
    assert authorizer(*resources).authorize(session, operation, TOPIC, name) is permitted


def test_a_super_user_may_do_what_is_denied():
    one = authorizer(on("orders", deny(READ)), super_users={ALICE.principal})
    assert one.authorize(ALICE, READ, TOPIC, "orders")
    assert not one.authorize(BOB, READ, TOPIC, "orders")


def test_a_resource_without_entries_may_be_everyones():
    one = authorizer(on("orders", entry(READ)), allows_if_no_acl=True)
    assert one.authorize(BOB, READ, TOPIC, "payments")
    assert not one.authorize(BOB, READ, TOPIC, "orders")


@pytest.mark.parametrize(("resources", "permitted"), [
    pytest.param([], False, id="nothing"),
    pytest.param([on("orders", entry(WRITE))], True, id="one topic"),
    pytest.param([on("ord", entry(WRITE), pattern=PatternType.PREFIXED)], True, id="a prefix"),
    pytest.param([on("orders", entry(WRITE), deny(WRITE))], False, id="one topic that is denied"),
    pytest.param([on("orders", entry(WRITE)), on("o", deny(WRITE), pattern=PatternType.PREFIXED)], False, id="prefix"),
    pytest.param([on("orders", entry(WRITE)), on("*", deny(WRITE))], False, id="every topic is denied"),
    pytest.param([on("*", entry(WRITE)), on("o", deny(WRITE), pattern=PatternType.PREFIXED)], True, id="every topic"),
])  # fmt: skip
def test_there_may_be_a_topic_to_write_to(resources, permitted):
    assert authorizer(*resources).authorize_by_resource_type(ALICE, WRITE, TOPIC) is permitted


def test_decisions_are_kept_until_the_lists_change():
    one = authorizer(on("orders", entry(READ)))
    assert one.authorize(ALICE, READ, TOPIC, "orders")
    one.take(on("orders", deny(READ)))
    assert not one.authorize(ALICE, READ, TOPIC, "orders")


def test_few_decisions_are_kept(monkeypatch):
    monkeypatch.setattr(acl_authorizer, "MAX_KEPT_DECISIONS", 10)
    one = authorizer(on("t", entry(READ), pattern=PatternType.PREFIXED))
    assert [one.authorize(ALICE, READ, TOPIC, f"t{number}") for number in range(100)] == [True] * 100
    assert len(one._kept) <= 10


def test_super_users_are_principals_between_semicolons():
    assert super_users("User:alice; User:CN=bob,O=x;") == {Principal("User", "alice"), Principal("User", "CN=bob,O=x")}
    assert super_users("") == frozenset()


@pytest.mark.parametrize("text", ["alice", "User:", ":alice", "User:alice;;User:bob"])
def test_a_super_user_who_is_no_principal_stops_the_start(text):
    with pytest.raises(InvalidConfigError, match=r"super\.users"):
        super_users(text)
