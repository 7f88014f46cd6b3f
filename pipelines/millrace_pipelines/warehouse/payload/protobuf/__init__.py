"""Protobuf values: message types from a descriptor set or .proto text, and messages to columns."""
