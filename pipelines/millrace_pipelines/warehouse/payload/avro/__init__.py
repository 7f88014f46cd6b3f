"""Avro values: a schema becomes a tree of readers, each of which reads one field of all records at once."""
