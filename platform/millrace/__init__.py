"""Millrace's shared core: records, wire protocol, clients, ZooKeeper, configuration.

The clients are here by name, and imported when they are first used: `from millrace import Producer`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from millrace.version import __version__ as __version__

if TYPE_CHECKING:
    from millrace.client.producer import Producer as Producer
    from millrace.client.producer import ProducerRecord as ProducerRecord
    from millrace.client.simple_consumer import SimpleConsumer as SimpleConsumer

if "t" in sys.abiflags:  # in many places two threads share what is whole only while one of them has the GIL
    raise ImportError("Millrace does not run on free-threaded builds of Python yet: install the build with the GIL")

_CLIENTS = {
    "Producer": "millrace.client.producer",
    "ProducerRecord": "millrace.client.producer",
    "SimpleConsumer": "millrace.client.simple_consumer",
}


def __getattr__(name: str) -> object:
    if name in _CLIENTS:
        return getattr(import_module(_CLIENTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
