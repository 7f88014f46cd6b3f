"""Values become typed columns, in the task: JSON, Avro or Protobuf, with a declared schema or in Confluent's frame.

    declaration ──┐
    registry ─────┼─► columns of the schema ──evolution──► columns of the table ──► Payload, which goes to the tasks
    table ────────┘
    records ─split─► values ─framing─► groups of one schema ─json | avro | protobuf─► its columns ─conform─► rows
                                                     └──────── what does not fit ────────► refusals ─► dead letters

Whether a value passes never depends on the values beside it.
"""
