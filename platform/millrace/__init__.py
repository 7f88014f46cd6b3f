"""Millrace's shared core: records, wire protocol, clients, ZooKeeper, configuration.

The clients are here by name, and imported when they are first used: `from millrace import Producer`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from millrace.version import __version__ as __version__

if TYPE_CHECKING:
    from millrace.client import Admin as Admin
    from millrace.client import Cluster as Cluster
    from millrace.client.consumer import ConsumerConnector as ConsumerConnector
    from millrace.client.producer import JsonEncoder as JsonEncoder
    from millrace.client.producer import Producer as Producer
    from millrace.client.producer import ProducerRecord as ProducerRecord
    from millrace.client.producer import StringEncoder as StringEncoder
    from millrace.client.simple_consumer import SimpleConsumer as SimpleConsumer
    from millrace.client.topic_reader import read_topic as read_topic

if "t" in sys.abiflags:  # in many places two threads share what is whole only while one of them has the GIL
    raise ImportError("Millrace does not run on free-threaded builds of Python yet: install the build with the GIL")

_MODULES = {
    "Admin": "millrace.client",
    "Cluster": "millrace.client",
    "ConsumerConnector": "millrace.client.consumer",
    "JsonEncoder": "millrace.client.producer",
    "Producer": "millrace.client.producer",
    "ProducerRecord": "millrace.client.producer",
    "SimpleConsumer": "millrace.client.simple_consumer",
    "StringEncoder": "millrace.client.producer",
    "read_topic": "millrace.client.topic_reader",
}

__all__ = [
    "Admin",
    "Cluster",
    "ConsumerConnector",
    "JsonEncoder",
    "Producer",
    "ProducerRecord",
    "SimpleConsumer",
    "StringEncoder",
    "read_topic",
]


def __getattr__(name: str) -> object:
    """Returns a client, imported now; raises AttributeError for any other name."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Returns what there is for a person at a prompt: the clients, and the version."""
    return [*__all__, "__version__"]
