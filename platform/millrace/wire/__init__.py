"""The Kafka wire protocol: frames, headers, and the messages of each API.

Messages on the hot path (produce, fetch, metadata answers), and versions that the `kio` library has no schema for, have
hand-written codecs. All others come through `messages`, which has a type for each, and `cold`, the one door to `kio`.
"""
