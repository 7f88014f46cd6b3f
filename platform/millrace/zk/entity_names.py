"""The names of users and clients in the paths of ZooKeeper's nodes, as Apache Kafka encodes them.

    bytes of UTF-8    A-Z a-z 0-9 . _ -    themselves        all others    %XX, in upper case
    the default of a level                 <default>, not encoded

Kafka takes Java's URLEncoder and then writes %20 for its `+` and %2A for `*` (Sanitizer). Addresses stay as they are.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

DEFAULT = "<default>"


def encode_name(name: str | None) -> str:
    """Returns the name of a node; None stands for the default user or client."""
    return DEFAULT if name is None else quote(name, safe="").replace("~", "%7E")


def decode_name(node: str) -> str | None:
    """Returns the name of a user or client; None for the default one."""
    return None if node == DEFAULT else unquote(node)
