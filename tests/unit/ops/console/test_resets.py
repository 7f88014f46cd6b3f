"""The plan of a reset in its form: what is no plan is refused."""

import json

import pytest

from millrace.errors import InvalidRequestError
from millrace_ops.console.pages.groups import MAX_PARTITIONS, Move, from_form, to_form

PLAN = [Move("t", 0, None, 5), Move("t", 1, 7, 0)]


def test_a_plan_comes_back_as_it_was_shown():
    assert from_form(to_form(PLAN)) == PLAN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "1",
        "[[]]",
        "[" * 10_000,
        '[["t", 0, null]]',
        '[["t", 0, null, 5, 6]]',
        '[["t", -1, null, 5]]',
        '[["t", 0, null, -5]]',
        '[["t", 0, null, 1e3]]',
        '[["t", 0, true, 1]]',
        "[[1, 0, null, 1]]",
        f'[["t", 0, null, {2**63}]]',
        f'[["t", {2**31}, null, 1]]',
        json.dumps([["t", 0, None, 1]] * (MAX_PARTITIONS + 1)),
    ],
)
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(InvalidRequestError):
        from_form(text)
