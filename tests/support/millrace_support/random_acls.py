"""Random access control lists, and random questions that they answer now this way and now that.

There are few names, so entries and questions meet often. The questions come in lines for the judge `Decisions.java`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from millrace.security.acls import Acl, AclOperation, PatternType, PermissionType, ResourcePattern, ResourceType
from millrace_broker.security.acls.acl_authorizer import AclAuthorizer, super_users
from millrace_broker.security.client_session import ClientSession, Principal

PRINCIPALS = ("User:alice", "User:bob", "User:CN=carol,O=x", "Group:alice")
HOSTS = ("10.0.0.1", "10.0.0.2", "192.168.1.7")
NAMES = ("a", "ab", "abc", "b", "ba", "*", "orders", "orders-eu", "ord", "o", "Ä", "kafka-cluster")
TYPES = tuple(one for one in ResourceType if one > ResourceType.ANY)
OPERATIONS = tuple(one for one in AclOperation if one > AclOperation.ANY)
ASKED = tuple(one for one in OPERATIONS if one is not AclOperation.ALL)


@dataclass
class Question:
    """One question: its line for the judge, and what the authorizer says."""

    line: str
    permitted: bool


def random_acls(random: Random) -> dict[ResourcePattern, frozenset[Acl]]:
    """Returns the lists of a few resources."""
    types = random.sample(TYPES, random.randint(1, 3))
    acls: dict[ResourcePattern, set[Acl]] = {}
    for _ in range(random.randint(0, 40)):
        pattern = ResourcePattern(
            random.choice(types),
            random.choice(NAMES),
            random.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        )
        acl = Acl(
            random.choice((*PRINCIPALS, "User:*")),
            random.choice((*HOSTS, "*")),
            random.choice(OPERATIONS),
            random.choice((PermissionType.ALLOW, PermissionType.ALLOW, PermissionType.DENY)),
        )
        acls.setdefault(pattern, set()).add(acl)
    return {pattern: frozenset(entries) for pattern, entries in acls.items()}


def cluster(random: Random, count: int) -> tuple[list[str], list[Question]]:
    """Returns the lines that describe a random cluster, and `count` questions about it."""
    users = random.choice(("", "", "User:bob", "User:bob;Group:alice"))
    everyone = random.random() < 0.3
    acls = random_acls(random)
    authorizer = AclAuthorizer(super_users(users), allows_if_no_acl=everyone)
    authorizer.take(acls)
    lines = [f"CLUSTER\t{users}\t{str(everyone).lower()}"]
    lines += [
        f"ACL\t{kind.name}\t{name}\t{pattern.name}\t{acl.principal}\t{acl.host}\t{acl.operation.name}"
        f"\t{acl.permission.name}"
        for (kind, name, pattern), entries in acls.items()
        for acl in entries
    ]
    types = sorted({pattern.resource_type for pattern in acls}) or TYPES
    return lines, [_question(random, authorizer, types) for _ in range(count)]


def _question(random: Random, authorizer: AclAuthorizer, types: Sequence[ResourceType]) -> Question:
    principal, host = random.choice(PRINCIPALS), random.choice(HOSTS)
    session = ClientSession(host, principal=Principal(*principal.split(":", 1)))
    operation, kind = random.choice(ASKED), random.choice(types)
    asked = f"{principal}\t{host}\t{operation.name}\t{kind.name}"
    if random.random() < 0.2:
        permitted = authorizer.authorize_by_resource_type(session, operation, kind)
        return Question(f"ANY\t{asked}", permitted)
    name = random.choice((*NAMES[:5], *NAMES[6:]))
    return Question(f"ASK\t{asked}\t{name}", authorizer.authorize(session, operation, kind, name))
