"""Apache Kafka's own authorizers judge ours: the same lists, the same questions, the same answers."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from millrace_support.java_programs import with_program
from millrace_support.random_acls import cluster

JUDGE = Path(__file__).parent / "judges" / "Decisions.java"
QUESTIONS = 100


@pytest.mark.soak(rounds=20, soak_rounds=1000)
def test_both_of_kafkas_authorizers_decide_as_ours(find_peer, rounds, record_property):
    """A thousand clusters with a hundred questions each; a fiftieth of them in `make test-all`.

    About any resource of a type, StandardAuthorizer decides otherwise: implied operations count on one made-up name,
    and names without entries, which `allow.everyone.if.no.acl.found` opens, do not count. Ours is AclAuthorizer's way.
    """
    lines, questions = [], []
    for number in rounds:
        described, asked = cluster(Random(number), QUESTIONS)
        lines += [*described, *(one.line for one in asked)]
        questions += asked
    judge, asked = with_program(find_peer("3.9"), JUDGE), "".join(f"{line}\n" for line in lines)
    answers = judge.run(JUDGE.stem, stdin=asked.encode()).split()
    assert len(answers) == len(questions)
    permitted = Counter(one.permitted for one in questions)
    assert min(permitted.values()) > len(questions) / 10, "the questions are answered both ways"
    wrong = [
        (one.line, one.permitted, answer)
        for one, answer in zip(questions, answers, strict=True)
        if answer[0] != f"{one.permitted:d}" or (one.line.startswith("ASK") and answer[1] != answer[0])
    ]
    assert wrong == []
    record_property("decisions", len(questions))
