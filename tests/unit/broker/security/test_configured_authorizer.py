"""Which authorizer the properties ask for; none is made where one would not be what they say."""

import pytest

from millrace.errors import InvalidConfigError
from millrace.security.acls import AclOperation, ResourceType
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.security.acls.acl_authorizer import ACLS, AclAuthorizer, configured_authorizer
from millrace_broker.security.client_session import ClientSession, Principal


class Nobody:
    """A pluggable authorizer."""

    def __init__(self, properties):
        self.properties = properties

    def authorize(self, session, operation, resource_type, name):
        return False

    def authorize_by_resource_type(self, session, operation, resource_type):
        return False

    def take(self, acls):
        pass


class Unfinished(Nobody):
    take = None


def configured(**properties):
    named = {name.replace("_", "."): value for name, value in properties.items()}
    known = {name: value for name, value in named.items() if name != "greeting"}
    return configured_authorizer(BrokerConfig.from_properties(known), named)


def test_without_a_name_there_is_none():
    assert configured() is None
    assert configured(allow_everyone_if_no_acl_found="true") is None


@pytest.mark.parametrize("name", ACLS)
def test_kafkas_names_stand_for_ours(name):
    admin = ClientSession("10.0.0.1", principal=Principal("User", "admin"))
    one = configured(authorizer_class_name=name, super_users="User:admin", allow_everyone_if_no_acl_found="true")
    assert isinstance(one, AclAuthorizer)
    assert one.authorize(admin, AclOperation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
    assert one.authorize(ClientSession("10.0.0.2"), AclOperation.READ, ResourceType.TOPIC, "orders")


def test_a_class_of_python_is_made_with_the_properties():
    one = configured(authorizer_class_name=f"{__name__}:Nobody", greeting="hello")
    assert isinstance(one, Nobody)
    assert one.properties["greeting"] == "hello"


@pytest.mark.parametrize(("properties", "said"), [
    ({"authorizer_class_name": "com.example.Authorizer"}, "expected kafka.security.authorizer.AclAuthorizer"),
    ({"authorizer_class_name": "no_such_module:Class"}, "can't be made: ModuleNotFoundError"),
    ({"authorizer_class_name": f"{__name__}:Missing"}, "can't be made: AttributeError"),
    ({"authorizer_class_name": f"{__name__}:Unfinished"}, "it has no take"),
    ({"authorizer_class_name": ACLS[0], "super_users": "admin"}, "super.users=admin: expected principals"),
    ({"super_users": "User:admin"}, "super.users=User:admin: Invalid value, authorizer.class.name names no"),
    ({"allow_everyone_if_no_acl_found": "false"}, "authorizer.class.name names no authorizer to obey it"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_anything_else_stops_the_start(properties, said):
    with pytest.raises(InvalidConfigError) as caught:
        configured(**properties)
    assert said in str(caught.value)
