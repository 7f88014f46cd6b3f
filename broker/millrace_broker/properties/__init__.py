"""The broker's properties: which ones exist, their types and defaults, and which of them Millrace obeys.

`broker_config`, `coordinator_config`, `security_config` and `listeners` hold what is obeyed. `kafka_properties` lists
everything that Apache Kafka knows, and `restrictions` what stops the start, and what is accepted without an effect,
with the reason.
"""
