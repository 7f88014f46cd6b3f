"""The Kafka wire protocol: frames, headers, and the messages of each API.

Messages on the hot path (produce, fetch, metadata answers) have hand-written codecs. All others come through
`messages`, which has a type for each, and `cold`, which decodes and encodes them by the schemas of `kio_schemas`.
"""
