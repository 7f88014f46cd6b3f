"""The broker: a long-running service that stores logs and speaks the Kafka protocol.

From the top: `broker` → `assembly` wires → `net` and `admin` → `handlers` → `cluster` → `replication` → `storage`.
"""
