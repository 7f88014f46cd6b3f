"""The authorizer that a broker's properties ask for.

    authorizer.class.name                                         the authorizer
    (empty)                                                       none: everyone may do everything
    kafka.security.authorizer.AclAuthorizer, or                   `AclAuthorizer`, with super.users and
    org.apache.kafka.metadata.authorizer.StandardAuthorizer       allow.everyone.if.no.acl.found
    MODULE:CLASS                                                  that class of Python, made with all properties

Any other value, and a property that only an authorizer obeys where there is none, stops the start: the broker would be
open although its operator believes it closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from millrace.errors import InvalidConfigError
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.security.acls.acl_authorizer import AclAuthorizer, super_users
from millrace_broker.security.acls.authorizer import Authorizer, PluggableAuthorizer

NAME = "authorizer.class.name"
ACLS = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
NEEDS = ("authorize", "authorize_by_resource_type", "take")


def configured_authorizer(config: BrokerConfig, properties: Mapping[str, str]) -> Authorizer | None:
    """Returns the authorizer; None for a broker without access control. Raises InvalidConfigError."""
    name = config.authorizer_class_name.strip()
    if name in ACLS:
        return AclAuthorizer(super_users(config.super_users), allows_if_no_acl=config.allow_everyone_if_no_acl_found)
    if name:
        return _own(name, properties)
    closes = "allow.everyone.if.no.acl.found" in properties and not config.allow_everyone_if_no_acl_found
    if config.super_users.strip() or closes:
        given = "super.users" if config.super_users.strip() else "allow.everyone.if.no.acl.found"
        raise InvalidConfigError(f"{given}={properties[given]}: Invalid value, {NAME} names no authorizer to obey it")
    return None


def _own(name: str, properties: Mapping[str, str]) -> Authorizer:
    module, _, attribute = name.partition(":")
    if not attribute:
        raise InvalidConfigError(f"{NAME}={name}: Invalid value, expected {ACLS[0]}, {ACLS[1]} or MODULE:CLASS")
    try:
        authorizer_class: PluggableAuthorizer = getattr(import_module(module), attribute)
        authorizer = authorizer_class(properties)
    except Exception as error:  # whatever the operator's own class raises
        raise InvalidConfigError(f"{NAME}={name}: Invalid value, it can't be made: {error!r}") from error
    missing = [one for one in NEEDS if not callable(getattr(authorizer, one, None))]
    if missing:
        raise InvalidConfigError(f"{NAME}={name}: Invalid value, it has no {', '.join(missing)}")
    return authorizer
