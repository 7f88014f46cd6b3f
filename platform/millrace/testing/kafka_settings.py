"""The properties of one small Apache Kafka broker, coordinated by ZooKeeper (3.x) or by itself (KRaft, 3.3 on)."""

from __future__ import annotations

from collections.abc import Mapping

SMALL = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "group.initial.rebalance.delay.ms": "0",
}


def with_zookeeper(data_dir: str, address: str, broker_id: int, zookeeper: str) -> dict[str, str]:
    """Returns the properties of a broker at `address` (`HOST:PORT`) on ZooKeeper at `HOST:PORT[/chroot]`."""
    return SMALL | {
        "broker.id": str(broker_id),
        "listeners": f"PLAINTEXT://{address}",
        "log.dirs": data_dir,
        "zookeeper.connect": zookeeper,
    }


def with_kraft(data_dir: str, address: str, broker_id: int, controller: str) -> dict[str, str]:
    """Returns the properties of a broker at `address` that is also the controller, at the address `controller`.

    A broker counts as gone after a minute without a heartbeat, and not after nine seconds: a busy machine delays them.
    """
    return SMALL | {
        "broker.session.timeout.ms": "60000",
        "node.id": str(broker_id),
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{broker_id}@{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data_dir,
    }


def beside_kraft(data_dir: str, address: str, broker_id: int, voters: str) -> dict[str, str]:
    """Returns the properties of a broker at `address` whose controller is another one, `ID@HOST:PORT`."""
    return with_kraft(data_dir, address, broker_id, "") | {
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://{address}",
        "controller.quorum.voters": voters,
    }


def with_listeners(
    properties: Mapping[str, str], protocols: Mapping[str, str], addresses: Mapping[str, str]
) -> dict[str, str]:
    """Returns a broker's properties with further listeners: by name, the security protocol and the address."""
    if not protocols:
        return dict(properties)
    map_name = "listener.security.protocol.map"
    added = ",".join(f"{name}://{address}" for name, address in addresses.items())
    said = ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())
    changed = {map_name: f"{properties.get(map_name, 'PLAINTEXT:PLAINTEXT')},{said}"}
    for name in ("listeners", "advertised.listeners"):
        changed[name] = f"{properties.get(name, properties['listeners'])},{added}"
    return {**properties, **changed}
