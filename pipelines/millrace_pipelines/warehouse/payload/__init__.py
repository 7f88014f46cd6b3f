"""Values to typed columns, in the task: by a declared schema, in JSON, Avro or Protobuf, plain or in Confluent's frame.

    declaration ──┐
    registry ─────┼─► columns of the schema ──evolution──► columns of the table ──► Payload, which goes to the tasks
    table ────────┘
    values ─framing─► groups of one schema ─json | avro | protobuf─► its columns ─conform─► the table's columns
                                                     └──────── what does not fit ────────► refusals, dead letters

Whether a value passes never depends on what stands beside it.
"""
