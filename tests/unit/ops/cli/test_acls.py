"""What the options of `millrace acls` mean."""

import pytest

from millrace.errors import InvalidConfigError
from millrace.security.acls import AclFilter, AclOperation, PatternType, PermissionType, ResourceType
from millrace_ops.cli.acls import Who, filters, new_bindings, operations_on, resources


def named(topics=(), groups=(), ids=(), users=(), *, cluster=False):
    return resources(topics, groups, ids, users, cluster=cluster)


def test_a_producer_and_a_consumer_need_what_kafkas_tool_gives_them():
    kinds = [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID]
    found = operations_on(kinds, ["alter"], producer=True, consumer=True)
    assert [one.pascal for one in found[ResourceType.TOPIC]] == ["Alter", "Write", "Describe", "Create", "Read"]
    assert [one.pascal for one in found[ResourceType.GROUP]] == ["Alter", "Read"]
    assert [one.pascal for one in found[ResourceType.TRANSACTIONAL_ID]] == ["Alter", "Write", "Describe"]


def test_a_resource_without_an_operation_is_refused():
    with pytest.raises(InvalidConfigError, match="no operation on Group"):
        operations_on([ResourceType.TOPIC, ResourceType.GROUP], (), producer=True, consumer=False)
    with pytest.raises(InvalidConfigError, match="operation 'look'"):
        operations_on([ResourceType.TOPIC], ["look"], producer=False, consumer=False)


def test_there_is_an_entry_for_each_combination():
    who = Who(allowed=["User:a", "User:b"], denied=["User:c"], hosts=["10.0.0.1", "10.0.0.2"])
    kinds = named(["x", "y"], cluster=True)
    wanted = {kind: [AclOperation.CREATE] for kind in kinds}
    found = new_bindings(kinds, wanted, who, prefixed=True)
    assert len(found) == len(set(found)) == 3 * 3 * 2
    assert {one.pattern.pattern_type for one in found if one.pattern.resource_type is ResourceType.CLUSTER} == {
        PatternType.LITERAL
    }
    assert {one.acl.principal for one in found if one.acl.permission is PermissionType.DENY} == {"User:c"}


def test_without_a_host_every_host_is_meant():
    kinds = named(groups=["g"])
    (found,) = new_bindings(kinds, {ResourceType.GROUP: [AclOperation.READ]}, Who(["User:a"]), prefixed=False)
    assert found.acl.host == "*"


def test_filters_find_all_combinations():
    assert filters({}, "any", (), (), ()) == [AclFilter()]
    found = filters(named(["x"], ["g"]), "match", ["User:a", "User:b"], (), ["read"])
    assert len(found) == 4
    assert found[0] == AclFilter(
        ResourceType.TOPIC, "x", PatternType.MATCH, "User:a", None, AclOperation.READ, PermissionType.ANY
    )
    with pytest.raises(InvalidConfigError, match="pattern 'regex'"):
        filters({}, "regex", (), (), ())
