"""Describes and checks the properties that one group may have for itself (KIP-848).

    group             /config/groups/[group], or `group_configs` of a standalone broker
    the broker's      group.consumer.*

Those of consumer groups are obeyed with the next heartbeat. Those of share and streams groups are stored, and have no
effect.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace.config import ConfigKey, ConfigTable, value_text
from millrace.errors import InvalidConfigError, InvalidRequestError
from millrace.zk import paths
from millrace_broker.cluster.config_sources import ConfigEntry, ConfigSource, ConfigSynonym, Properties
from millrace_broker.properties.group_config import OWN_CONFIG, ConsumerGroupConfig
from millrace_broker.properties.kafka_properties import GROUP
from millrace_broker.properties.without_effect import keys_without_effect

GROUP_KEYS: Mapping[str, ConfigKey] = {
    **OWN_CONFIG.keys,
    **{key.name: key for key in keys_without_effect(GROUP, OWN_CONFIG.keys)},
}


def group_entries(own: Properties, config: ConsumerGroupConfig) -> list[ConfigEntry]:
    """Returns every property of a group; those that it does not have itself are the broker's."""
    defaults = {
        "consumer.session.timeout.ms": config.group_consumer_session_timeout_ms,
        "consumer.heartbeat.interval.ms": config.group_consumer_heartbeat_interval_ms,
    }
    entries = []
    for name, key in GROUP_KEYS.items():
        default = value_text(defaults.get(name, key.default))
        value, source = (own[name], ConfigSource.GROUP) if name in own else (default, ConfigSource.DEFAULT)
        entries.append(ConfigEntry(key, value, source, (ConfigSynonym(name, value, source),)))
    return entries


def check_group_name(name: str) -> None:
    """Raises InvalidRequestError where a group of this name can't have a configuration."""
    if not paths.is_name(name):
        raise InvalidRequestError(f"group name {name!r} is invalid: it must be the name of a node of ZooKeeper")


def check_group_config(own: Properties, config: ConsumerGroupConfig) -> None:
    """Raises InvalidConfigError for a property that a group may not have, or a value that does not fit."""
    unknown = next((name for name in own if name not in GROUP_KEYS), None)
    if unknown is not None:
        raise InvalidConfigError(f"Unknown group config name: {unknown}")
    ConfigTable(GROUP_KEYS.values()).parse(own)
    config.of_group(own)
