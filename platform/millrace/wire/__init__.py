"""The Kafka wire protocol: frames, headers, and the messages of each API.

Messages on the hot path (produce, fetch, metadata answers) have encoders of their own; all others,
and every decoder, come through `cold`, the one door to the `kio` library.
"""
