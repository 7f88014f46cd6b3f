"""What a history claims of a part of the offsets, against a table of which every row is known.

In a table that only Millrace changes, the number of rows of any part is one that its history allows. Whatever something
else has taken away or added, the history knows the number of all rows, until keys are erased.
"""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load.history import claimed_records

LEDGER = "id-1"
MOST_OFFSETS = 8
places = st.sets(st.integers(0, 40))


class Model:
    """A table with one partition: which offsets are there, and what its commits and those of its dead letters say."""

    def __init__(self):
        self.end = 0
        self.rows = set()
        self.history = []
        self.of_dead_letters = []

    def load(self, offsets, records):
        made = {place % offsets + self.end for place in records}
        claim = {"partition": 0, "from_offset": self.end, "until_offset": self.end + offsets, "rows": len(made)}
        self.history.append({"kind": "load", "ledger": LEDGER, "ranges": [claim]})
        self.rows |= made
        self.end += offsets

    def erase(self, erased):
        gone = self.rows & erased
        self.history.append({"kind": "erase", "absent": [{"partition": 0, "offsets": len(gone)}]})
        self.rows -= gone

    def reload(self, part, compacted, aborted, letters):
        """Reads a part again: what was compacted is gone, what was aborted is there if nothing is left out."""
        inside = set(range(part.from_offset, part.until_offset))
        gone, new = self.rows & inside & compacted, ((aborted or set()) & inside) - self.rows
        isolation = "read_committed" if aborted is None else "read_uncommitted"
        said = {"isolation": isolation, "replaced": [part._asdict()]}
        for history, offsets in ((self.of_dead_letters, letters), (self.history, len(gone) - len(new) - letters)):
            history.append({"kind": "load", **said, "absent": [{"partition": 0, "offsets": offsets}]})
        self.rows = self.rows - gone | new

    def part(self, low, high):
        low, high = sorted((low % (self.end + 1), high % (self.end + 1)))
        return OffsetRange(0, low, high)

    def count(self, part):
        return sum(part.from_offset <= row < part.until_offset for row in self.rows)

    def claimed(self, part, found):
        return claimed_records(self.history, self.of_dead_letters, LEDGER, part, found)


@st.composite
def models(draw, *, with_erasures):
    model = Model()
    for step in draw(st.lists(st.sampled_from("llre" if with_erasures else "llr"), max_size=8)):
        if step == "l":
            model.load(draw(st.integers(1, MOST_OFFSETS)), draw(places))
        elif step == "e":
            model.erase(draw(places))
        else:
            part = model.part(draw(st.integers(0, 64)), draw(st.integers(0, 64)))
            letters = draw(st.integers(-2, 2)) if part.offsets else 0
            model.reload(part, draw(places), draw(st.none() | places), letters)
    return model


@given(models(with_erasures=True), st.integers(0, 64), st.integers(0, 64))
def test_what_is_there_is_claimed_where_nothing_else_changed_the_table(model, low, high):
    part = model.part(low, high)
    assert model.claimed(part, model.count(part)) == model.count(part)


@given(models(with_erasures=False), st.integers(-50, 50))
def test_the_number_of_all_rows_is_known_whatever_is_there(model, more):
    everything = OffsetRange(0, 0, model.end)
    assert model.claimed(everything, model.count(everything) + more) == model.count(everything)


@given(st.lists(st.integers(1, MOST_OFFSETS), min_size=1, max_size=5), st.data())
def test_of_loads_without_gaps_each_part_is_known(sizes, data):
    model = Model()
    for size in sizes:
        model.load(size, range(size))
    part = model.part(data.draw(st.integers(0, 64)), data.draw(st.integers(0, 64)))
    taken = Counter(data.draw(st.lists(st.integers(0, 64))))
    assert model.claimed(part, part.offsets - taken.total()) == part.offsets
