"""The broker's properties: which ones exist, their types and defaults, and which of them Millrace obeys.

`broker_config`, `group_config`, `token_config`, `transaction_config` and `listeners` hold what is obeyed.
`kafka_properties` lists everything that Apache Kafka knows, `restrictions` what stops the start, and `without_effect`
what is accepted without an effect, with the reason.
"""
