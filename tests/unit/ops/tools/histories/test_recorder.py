"""What is recorded is what is read again."""

import io

from millrace_tools.histories.events import Action, Outcome, Owning, Poll, Send, read_history
from millrace_tools.histories.recorder import Recorder


def test_a_recorded_history_is_read_again():
    file = io.StringIO()
    recorder = Recorder(file)
    recorder.invoke("r", Action.ASSIGN, partitions=["t-0"])
    recorder.invoke("p", Action.TRANSACTION, [Send("t-0", 1)])
    recorder.end("r", Outcome.OK)
    recorder.end("p", Outcome.OK, [Poll("t-0", ((0, 7), (1, 8))), Send("t-0", 1, 2)], committing_ns=5)
    recorder.invoke("p", Action.SEND, [Send("t-0", 2)])
    file.seek(0)
    assigned, transaction, unended = read_history(file)
    assert (assigned.action, assigned.partitions, assigned.outcome) == (Action.ASSIGN, ("t-0",), Outcome.OK)
    assert transaction.steps == (Poll("t-0", ((0, 7), (1, 8))), Send("t-0", 1, 2))
    assert transaction.committing_ns == 5
    assert (unended.outcome, unended.steps) == (Outcome.INFO, (Send("t-0", 2),))
    assert recorder.done == {Action.ASSIGN: 1, Action.TRANSACTION: 1}
    assert recorder.await_done({Action.SEND: 0}, 0)
    assert not recorder.await_done({Action.SEND: 1}, 0)


def test_what_an_owner_does_is_read_again():
    file, claimed, given = io.StringIO(), Owning(Action.CLAIM, "t-0", 4), Owning(Action.HAND_OUT, "t-0", 4, 9)
    recorder = Recorder(file)
    for owning in (claimed, given):
        recorder.invoke("m", owning.action, [owning], group="g")
        recorder.end("m", Outcome.OK, [owning])
    file.seek(0)
    assert [(one.group, one.steps) for one in read_history(file)] == [("g", (claimed,)), ("g", (given,))]
