"""The text of ids."""

from uuid import UUID, uuid4

import pytest

from millrace.uuids import NO_TOPIC_ID, decode_id, encode_id


@pytest.mark.parametrize("value", [uuid4(), NO_TOPIC_ID, UUID(int=2**128 - 1)])
def test_ids_have_22_characters_and_come_back(value):
    assert len(encode_id(value)) == 22
    assert decode_id(encode_id(value)) == value


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "ä" * 22])
def test_other_text_is_no_id(text):
    with pytest.raises(ValueError):
        decode_id(text)
