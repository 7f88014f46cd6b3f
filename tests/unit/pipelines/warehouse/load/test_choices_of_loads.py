"""The choices of a load may be given as texts; what is no choice is refused, with those that there are."""

import pytest

from millrace.errors import WarehouseError
from millrace_pipelines.spark.choices import Isolation, Reader
from millrace_pipelines.warehouse.load.options import CHOICES, LoadOptions

NEEDED = {"topic": "events", "table": "/lake/events", "bootstrap": "b:9092"}


@pytest.mark.parametrize(("name", "kind"), CHOICES.items())
def test_a_choice_may_be_a_text(name, kind):
    for choice in kind:
        for given in (choice, str(choice)):
            assert getattr(LoadOptions(**NEEDED, **{name: given}), name) is choice


@pytest.mark.parametrize(("name", "kind"), CHOICES.items())
@pytest.mark.parametrize("given", ["", "Upsert", "none ", 1])
def test_another_word_is_refused(name, kind, given):
    with pytest.raises(WarehouseError, match=f"^{name}={given!r}: a load takes {', '.join(kind)}$"):
        LoadOptions(**NEEDED, **{name: given})


def test_what_is_not_chosen_is_the_table_s():
    options = LoadOptions(**NEEDED)
    assert (options.mode, options.compression) == (None, None)
    assert (options.isolation, options.reader) == (Isolation.READ_COMMITTED, Reader.MILLRACE)
