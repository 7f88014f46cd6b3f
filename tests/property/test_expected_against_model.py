"""What a history expects of each offset, against a table of which every row and letter is known.

Each history mixes loads, reloads, erasures of rows and of letters, and now and then a commit of an older version, which
keeps numbers alone. What is KNOWN is always as in the model, and all is, where no older version committed.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.records.absent import intervals_of
from millrace_pipelines.warehouse.completeness.expected import KNOWN, Expected
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.table import lineage
from millrace_pipelines.warehouse.table.lineage import INLINE_BYTES, OffsetPage, keep_offsets, packed, pages_of
from millrace_support.loads import FS

MOST_OFFSETS = 8
places = st.sets(st.integers(0, 40))


class Model:
    """One partition: what each ledger's loads have made of it, and what the commits say."""

    def __init__(self, store):
        self.store = store
        self.ends = {"first": 0, "second": 3}
        self.rows = Counter()
        self.letters = Counter()
        self.history = []
        self.of_dead_letters = []
        self.erased_of = Counter()
        self.has_former = self.is_old = False

    def kept(self, pages):
        return keep_offsets(self.store, "op", list(pages))

    def recorded(self, low, high, records):
        found = intervals_of(np.array(sorted(records), np.int64))
        return {"recorded": self.kept([OffsetPage(0, low, high, packed(found, low))])}

    def load(self, offsets, records, letters, *, keeps):
        ledger = "second" if self.has_former else "first"
        low, high = self.ends[ledger], self.ends[ledger] + offsets
        made = {place % offsets + low for place in records}
        dead = {place % offsets + low for place in letters} & made
        span = {"partition": 0, "from_offset": low, "until_offset": high, "rows": len(made - dead)}
        self.note({"ledger": ledger, "ranges": [span | {"dead_letters": len(dead)}]}, (low, high), made, keeps=keeps)
        self.rows.update(made - dead)
        self.letters.update(dead)
        self.ends[ledger] = high

    def reload(self, low, high, records, *, keeps):
        if self.has_former or low >= high:
            return
        made = {place for place in records if low <= place < high}
        span = {"partition": 0, "from_offset": low, "until_offset": high, "rows": len(made)}
        left_out = {place for place in made if self.erased_of[place]}
        said = {"ledger": "first", "replaced": [span]}
        if keeps and any(commit.get("kind") == "erase" for commit in self.history):
            offsets = np.array(sorted(left_out), np.int64)
            said["erased"] = self.kept(pages_of(np.zeros_like(offsets), offsets))
        self.note(said, (low, high), made, keeps=keeps)
        for place in range(low, high):
            self.rows[place], self.letters[place] = int(place in made - left_out), 0

    def note(self, said, span, made, *, keeps):
        is_whole = len(made) == span[1] - span[0]
        self.history.append({"kind": "load", **said, **(self.recorded(*span, made) if keeps and not is_whole else {})})
        self.is_old |= not keeps

    def erase(self, places, *, keeps):
        for table, history in ((self.letters, self.of_dead_letters), (self.rows, self.history)):
            gone = sorted(Counter({place: table[place] for place in places if table[place] > 0}).elements())
            said = {"kind": "erase", "absent": [{"partition": 0, "offsets": len(gone)}] if gone else []}
            offsets = np.array(gone, np.int64)
            said |= {"erased": self.kept(pages_of(np.zeros_like(offsets), offsets))} if keeps else {}
            history.append(said)
            table.subtract(gone)
        self.erased_of.update(places)
        self.is_old |= not keeps


@st.composite
def models(draw, store, *, with_old):
    model = Model(store)
    for step in draw(st.lists(st.sampled_from("llrreo"), max_size=10)):
        keeps = not (with_old and draw(st.booleans()))
        if step == "l":
            offsets = draw(st.integers(1, MOST_OFFSETS))
            model.load(offsets, draw(places | st.just(range(40))), draw(places), keeps=keeps)
        elif step == "r":
            end = model.ends["first"]
            low, high = sorted((draw(st.integers(0, end)), draw(st.integers(0, end))))
            model.reload(low, high, draw(places | st.just(range(40))), keeps=keeps)
        elif step == "e":
            model.erase(draw(places), keeps=keeps)
        else:
            model.has_former = True
    return model


@pytest.mark.parametrize("with_old", [False, True])
@pytest.mark.parametrize("inline_bytes", [0, INLINE_BYTES])
@given(data=st.data())
def test_what_is_known_is_as_in_the_model(tmp_path_factory, with_old, inline_bytes, data):
    store = store_at(str(tmp_path_factory.getbasetemp() / "sets"), FS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lineage, "INLINE_BYTES", inline_bytes)
        model = data.draw(models(store, with_old=with_old))
    expected = Expected(store, model.history, ["first", "second"], (store, model.of_dead_letters))
    low, high = sorted((data.draw(st.integers(0, 90)), data.draw(st.integers(0, 90))))
    found = expected.of(0, low, high)
    assert expected.damages == []
    for place, times, claims, state in zip(range(low, high), found.times, found.claims, found.state, strict=True):
        assert state != KNOWN or times == model.rows[place] + model.letters[place]
        assert state == KNOWN or model.is_old or claims > 1
