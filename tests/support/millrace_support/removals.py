"""The notes of replicas that their brokers are to delete, which controllers of Apache Kafka do not keep."""

from kazoo.client import KazooClient

from millrace.zk import paths


def forget_removals(address: str, broker_id: int, topic: str, *partitions: int) -> None:
    """Removes the notes that a broker is to delete its replicas of these partitions; no controller may be running."""
    client = KazooClient(hosts=address, timeout=60)
    client.start()
    try:
        for partition in partitions:
            client.delete(paths.removal(broker_id, topic, partition))
    finally:
        client.stop()
        client.close()
