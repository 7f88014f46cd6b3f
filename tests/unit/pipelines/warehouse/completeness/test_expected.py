"""Where no more than numbers is known of offsets, and what makes them known again."""

import numpy as np
import pytest

from millrace_pipelines.warehouse.completeness.expected import DAMAGED, KNOWN, OLD, Expected
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.table.lineage import keep_offsets, pages_of
from millrace_support.loads import FS

DAMAGED_SET = {"crc32": 0, "pages": []}


@pytest.fixture
def store(tmp_path):
    return store_at(str(tmp_path), FS)


def load(low, high, rows=None, **facts):
    span = {"partition": 0, "from_offset": low, "until_offset": high, "rows": high - low if rows is None else rows}
    return {"kind": "load", "ledger": "one", "ranges": [span], **facts}


def reload(low, high, rows=None, **facts):
    said = load(low, high, rows)
    return {**said, "ranges": [], "replaced": said["ranges"], **facts}


def erasure(offsets=1, **facts):
    return {"kind": "erase", "absent": [{"partition": 0, "offsets": offsets}], "below": {"0": 8}, **facts}


def kept(store, *offsets):
    places = np.array(offsets, np.int64)
    return keep_offsets(store, "op", list(pages_of(np.zeros_like(places), places)))


def states(store, history, letters=None):
    expected = Expected(store, history, ["one", "two"], None if letters is None else (store, letters))
    return expected.of(0, 0, 10).state.tolist()


def test_numbers_tell_all_of_a_load_whose_offsets_all_gave_records(store):
    assert states(store, [load(0, 4), load(4, 10, 5)]) == [KNOWN] * 4 + [OLD] * 6


@pytest.mark.parametrize(("said", "state"), [({}, OLD), ({"erased": DAMAGED_SET}, DAMAGED)])
def test_what_an_erasure_removed_may_be_any_offset_below_its_ends_until_a_reload(store, said, state):
    of_dead_letters, of_rows = [load(0, 10)], [load(0, 10), erasure(**said)]
    assert states(store, of_rows) == states(store, of_dead_letters, [erasure(**said)]) == [state] * 8 + [KNOWN] * 2
    again = reload(2, 5, erased=kept(store))
    assert states(store, [*of_rows, again]) == [state] * 2 + [KNOWN] * 3 + [state] * 3 + [KNOWN] * 2
    assert states(store, [*of_dead_letters, again], [erasure(**said)])[2:5] == [KNOWN] * 3


@pytest.mark.parametrize(("said", "state"), [({}, OLD), ({"erased": DAMAGED_SET}, DAMAGED)])
def test_a_reload_after_an_erasure_says_what_it_left_out(store, said, state):
    history = [load(0, 10), erasure(erased=kept(store, 4))]
    assert states(store, [*history, reload(2, 5, **said)]) == [KNOWN] * 2 + [state] * 3 + [KNOWN] * 5
    assert states(store, [*history, reload(2, 5, erased=kept(store, 4))]) == [KNOWN] * 10
    assert states(store, [load(0, 10), reload(2, 5)]) == [KNOWN] * 10


def test_letters_that_were_erased_where_two_ledgers_claim_the_offset_are_of_one_of_them(store):
    history = [load(0, 10), load(5, 10, ledger="two")]
    assert states(store, history, [erasure(erased=kept(store, 3, 7))]) == [KNOWN] * 7 + [OLD] + [KNOWN] * 2


def test_what_a_load_kept_and_is_damaged_matters_until_a_reload(store):
    history = [load(0, 10, 5, recorded=DAMAGED_SET)]
    assert states(store, history) == [DAMAGED] * 10
    assert Expected(store, history, ["one"]).damages == [
        f"{store.location}: the offsets in its lineage: CRC-32 is 223132457, and 0 was written"
    ]
    assert states(store, [*history, reload(0, 9)]) == [KNOWN] * 9 + [DAMAGED]
