from hypothesis import given
from hypothesis import strategies as st

from millrace_pipelines.warehouse.iceberg.ledger_state import flat, nested

PARTS = st.sampled_from(["millrace", "id-1", "id-1.2", "0", "1", "17", "start", "epoch", "rewrites"])
APP_IDS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


@given(st.dictionaries(APP_IDS, st.integers(-1, 2**63 - 1), max_size=12))
def test_transactions_come_back_as_they_were(transactions):
    assert flat(nested(transactions)) == transactions


def test_what_partitions_share_is_said_once():
    transactions = {"millrace/id/0": 12, "millrace/id/0/start": 3, "millrace/id/1": 5, "millrace/rewrites": 2}
    assert nested(transactions) == {"millrace": {"id": {"0": {"": 12, "start": 3}, "1": 5}, "rewrites": 2}}
