"""Names of columns on the command line."""

import pytest
import typer

from millrace_ops.cli.warehouse import column_names


def test_a_field_is_named_by_what_stands_before_the_last_equals_sign():
    assert column_names(None) == {}
    assert column_names(["timestamp=sent_at", "in/[]/a=b=c", "zip code=zip"]) == {
        "timestamp": "sent_at", "in/[]/a=b": "c", "zip code": "zip",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["timestamp", "=name", "timestamp=", "", "="])
def test_what_is_no_pair_is_refused(text):
    with pytest.raises(typer.BadParameter, match="is not FIELD=NAME"):
        column_names([text])
