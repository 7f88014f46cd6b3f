"""Names of users and clients in paths, held against what Apache Kafka's Sanitizer makes of them."""

import pytest

from millrace.zk.paths import decode_name, encode_name


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("alice", "alice"),
        ("CN=a b,O=*", "CN%3Da%20b%2CO%3D%2A"),
        ("a.b_c-d~", "a.b_c-d%7E"),
        ("+/<default>", "%2B%2F%3Cdefault%3E"),
        ("é", "%C3%A9"),
        (None, "<default>"),
    ],
)
def test_names_are_encoded_as_by_kafka(name, node):
    assert encode_name(name) == node
    assert decode_name(node) == name
