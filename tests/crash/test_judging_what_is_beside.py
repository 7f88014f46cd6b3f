"""What a table or a group beside a history may not have is found in histories made by hand."""

from group_beside import commits_ahead
from table_beside import differences

from millrace_tools.histories.events import Action, Operation, Outcome, Owning, Send

HAND_OUT, COMMIT = Action.HAND_OUT, Action.COMMIT


def operation(index, action, outcome, *steps):
    return Operation(
        index=index, process="p", action=action, outcome=outcome, invoked_ns=10 * index, completed_ns=10 * index + 5,
        steps=steps,
    )  # fmt: skip


SENT = [
    operation(1, Action.SEND, Outcome.OK, Send("e-0", 1, 0)),
    operation(2, Action.SEND, Outcome.INFO, Send("e-0", 2, 1), Send("e-1", 3)),
    operation(3, Action.TRANSACTION, Outcome.OK, Send("e-1", 4, 0)),
    operation(4, Action.TRANSACTION, Outcome.FAIL, Send("e-1", 5, 2)),
    operation(5, Action.TRANSACTION, Outcome.INFO, Send("e-1", 6, 4)),
]
MUST = [("e-0", 0, 1), ("e-0", 1, 2), ("e-1", 0, 4)]


def test_rows_are_what_the_clients_were_told():
    assert differences(SENT, MUST) == []
    assert differences(SENT, [*MUST, ("e-1", 3, 3), ("e-1", 4, 6)]) == []


def test_each_difference_is_found():
    assert len(differences(SENT, MUST[1:])) == 1  # an acknowledged one is lost
    assert len(differences(SENT, [MUST[0], MUST[2]])) == 1  # one of several, the others of which nobody knows
    assert len(differences(SENT, [*MUST, MUST[2]])) == 1  # twice
    assert len(differences(SENT, [*MUST[:2], ("e-1", 9, 4)])) == 1  # elsewhere
    assert len(differences(SENT, [*MUST, ("e-1", 2, 5)])) == 1  # aborted
    assert len(differences(SENT, [*MUST, ("e-1", 4, 6), ("e-1", 5, 6)])) == 1  # unknown, and twice
    assert len(differences(SENT, [*MUST, ("e-0", 7, 99)])) == 1  # sent by nobody


def owned(index, action, offset):
    return operation(index, action, Outcome.OK, Owning(action, "e-0", 1, offset))


def test_a_commit_ahead_of_what_was_handed_out_is_found():
    handed = [owned(6, HAND_OUT, 0), owned(7, COMMIT, 1), owned(8, HAND_OUT, 1), owned(9, COMMIT, 5)]
    sent = [operation(1, Action.SEND, Outcome.OK, Send("e-0", 1, 0), Send("e-0", 2, 1))]
    assert list(commits_ahead([*sent, *handed])) == []
    early = [owned(6, HAND_OUT, 0), owned(7, COMMIT, 2), owned(8, HAND_OUT, 1)]
    assert len(list(commits_ahead([*sent, *early]))) == 1
    assert len(list(commits_ahead([*sent, *early[:2]]))) == 1
