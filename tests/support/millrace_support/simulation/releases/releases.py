"""The two releases of a simulation: brokers run this one, or the former one, and change from one to the other.

A simulated broker is a machine with its disk, and its class is the release that it runs. A broker that has ended gets
another class, and starts with what the disk has. The two releases meet in bytes alone: on the network, on disks, and in
ZooKeeper's nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from random import Random
from typing import Any, cast
from unittest.mock import patch
from uuid import UUID

from millrace_support.former_release import former_packages
from millrace_support.simulation.light_processes import SMALL_BUFFER_BYTES, InlineExecutor
from millrace_support.simulation.releases.former_modules import former_module, install
from millrace_support.simulation.releases.former_names import former_simulated_broker
from millrace_support.simulation.simulated_broker import SimulatedBroker

UUIDS = ("handlers.k11_join_group", "handlers.k68_consumer_group_heartbeat")
THREADS = ("storage.manager.opening", "storage.manager.closing")


@cache
def former_release() -> type[SimulatedBroker]:
    """Returns the class of brokers that run the former release. Raises SetupError where it can't be built."""
    install(former_packages())
    return cast("type[SimulatedBroker]", former_simulated_broker())


def is_former(broker: SimulatedBroker) -> bool:
    """Returns whether a broker runs the former release."""
    return not isinstance(broker, SimulatedBroker)


def change_release(broker: SimulatedBroker) -> None:
    """Gives a broker that has ended the other release."""
    broker.__class__ = SimulatedBroker if is_former(broker) else former_release()


@contextmanager
def light_former_processes(chance: Random) -> Iterator[None]:
    """Makes brokers of the former release cheap, and lets chance decide the ids that they give to members."""
    new_id: Callable[[], UUID] = lambda: UUID(int=chance.getrandbits(128))  # noqa: E731
    with ExitStack() as patches:

        def change(module: str, name: str, value: Any) -> None:
            patches.enter_context(patch.object(former_module(f"millrace_broker.{module}"), name, value))

        former_release()
        for module in THREADS:
            change(module, "ThreadPoolExecutor", InlineExecutor)
        for module in UUIDS:
            change(module, "uuid4", new_id)
        change("replication.broker_link", "SCRATCH_BYTES", SMALL_BUFFER_BYTES)
        throttle = former_module("millrace_broker.storage.throttle").Throttle
        patches.enter_context(patch.object(throttle, "_pause", lambda *_: None))
        yield
