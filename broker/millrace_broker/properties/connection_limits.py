"""How many connections a broker takes, and each of its listeners (KIP-402, KIP-612).

max.connections                 open at one time
max.connection.creation.rate    opened per second
listener.name.NAME.PROPERTY     the same of one listener; the broker's limit unless it is set
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from millrace.config import MAX_INT
from millrace_broker.properties.broker_config import BROKER_CONFIG, BrokerConfig
from millrace_broker.properties.listeners import CREATION_RATE, MAX_CONNECTIONS, override


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of the broker, and those that listeners have for themselves: by the listener and the property."""

    broker: BrokerConfig
    own: Mapping[tuple[str, str], int]

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ConnectionLimits:
        """Parses the properties of a broker."""
        broker = {name: text for name, text in properties.items() if name in BROKER_CONFIG.keys}
        own = {
            (one.listener, one.name): cast("int", BROKER_CONFIG.keys[one.name].parse(text))
            for name, text in properties.items()
            if (one := override(name)) is not None and not one.secures and one.name in BROKER_CONFIG.keys
        }
        return cls(BrokerConfig.from_properties(broker), own)

    def open(self, listener: str) -> int:
        """Returns how many connections of a listener may be open at one time."""
        return self.own.get((listener, MAX_CONNECTIONS), self.broker.max_connections)

    def per_second(self, listener: str) -> float | None:
        """Returns how many connections of a listener may be opened per second; None where that is not limited."""
        rate = self.own.get((listener, CREATION_RATE), self.broker.max_connection_creation_rate)
        return None if rate == MAX_INT else rate
