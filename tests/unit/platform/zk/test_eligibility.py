"""The nodes that say who may lead without loss: what is written is read, bounds hold, and other data is an error."""

import json

import pytest

from millrace.errors import ZooKeeperError
from millrace.zk.eligibility import (
    MAX_LIST_BYTES,
    NO_ONE,
    Eligibility,
    LossReport,
    SeenEpochs,
    decode_damage,
    decode_eligibility,
    decode_loss,
    decode_seen_epochs,
    encode_damage,
    encode_eligibility,
    encode_loss,
    encode_seen_epochs,
)

ZXID = 77
SOME = frozenset({("t", 0), ("t", 11), ("u.v", 3)})
MANY = frozenset((f"{'t' * 240}{number}", 0) for number in range(MAX_LIST_BYTES // 240))


def test_who_is_eligible_holds_in_one_partition_epoch():
    known = Eligibility((2, 3), (4,), (1,), {"topics/t": 12, "brokers/<default>": 0})
    data = encode_eligibility(known, 7)
    assert json.loads(data) == {
        "version": 1,
        "partition_epoch": 7,
        "eligible": [2, 3],
        "doubtful": [4],
        "empty": [1],
        "configs": {"topics/t": 12, "brokers/<default>": 0},
    }
    assert decode_eligibility(data, 7) == known
    assert decode_eligibility(data, 8) == decode_eligibility(data, 6) == NO_ONE


@pytest.mark.parametrize("epoch", [None, 31])
@pytest.mark.parametrize("kept", [frozenset(), SOME])
def test_a_loss_is_read_as_it_was_written(epoch, kept):
    assert decode_loss(encode_loss(LossReport(epoch, kept)), ZXID) == LossReport(epoch, kept)


def test_former_releases_write_two_words():
    assert decode_loss(b"coming", ZXID) == LossReport(None)
    assert decode_loss(b"here", ZXID) == LossReport(ZXID)


def test_seen_broker_epochs_are_read_as_they_were_written():
    data = encode_seen_epochs(SeenEpochs(5, {3: 29, 1: 31}))
    assert json.loads(data) == {"version": 1, "controller_epoch": 5, "brokers": {"1": 31, "3": 29}}
    assert decode_seen_epochs(data) == SeenEpochs(5, {1: 31, 3: 29})


def test_lists_that_are_too_long_are_left_out():
    data = encode_loss(LossReport(31, MANY))
    assert len(data) < MAX_LIST_BYTES
    assert decode_loss(data, ZXID) == LossReport(31)
    assert len(encode_damage(MANY)) < MAX_LIST_BYTES
    assert decode_damage(encode_damage(MANY)) is None
    assert decode_damage(encode_damage(SOME)) == SOME


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b'{"version":1}', b'{"partitions":{"t":["x"]}}', b"x"])
@pytest.mark.parametrize(
    "decode",
    [decode_damage, decode_seen_epochs, lambda data: decode_loss(data, 1), lambda data: decode_eligibility(data, 1)],
)
def test_other_data_is_an_error(decode, data):
    with pytest.raises(ZooKeeperError):
        decode(data)
