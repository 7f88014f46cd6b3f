"""The same request to Millrace and to two versions of Apache Kafka: the same answer, field by field.

Every scenario runs in every version that a broker advertises. Millrace must answer as one of the Kafkas that serve the
version does; what must differ is declared in `differential/differences.py`, one line with its reason for each. Where
Millrace does not serve an API the Kafkas still judge one another, so that the scenario is known to be sound.
"""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
from differential import sides
from differential.compare import differences, masked
from differential.differences import BETWEEN_KAFKAS, BY_CHOICE, OPEN
from differential.scenario import BREAKS, SCENARIOS
from differential.scenarios import (  # noqa: F401 - the rows
    cluster,
    configs,
    consumer_groups,
    fencing,
    group_members,
    group_offsets_and_lists,
    records,
    topics,
    transaction_begins_and_ends,
    transaction_offsets_and_lists,
    transactional_records,
)

from millrace_support.kafka_messages import Messages

COMPARED, AGREES = "compared", "agrees"  # properties of reports, for the summary
SHOWN_CHARACTERS = 160
SHOWN_DIFFERENCES = 8


@pytest.fixture(scope="module")
def judges(find_peer, tmp_path_factory):
    """The three brokers."""
    old, new = find_peer("3.9"), find_peer("4.1")
    with sides.started(tmp_path_factory.mktemp("sides"), old, new, Messages([new, old])) as running:
        yield running


@pytest.fixture(scope="module")
def pool():
    with ThreadPoolExecutor() as executor:
        yield executor


def transcripts(scenario, side):
    """What a broker answers, by version."""
    return {version: scenario.transcript(side, version) for version in served_by(side, scenario)}


def served_by(side, scenario):
    """Returns the versions that a scenario is made for and that a broker advertises, the lowest first."""
    return [version for version in side.versions.get(scenario.api, ()) if version in scenario.versions]


def compared(scenario, theirs, ours):
    """Fields that differ, as lines."""
    found = differences(masked(scenario.api, theirs), masked(scenario.api, ours))
    return [f"{path}: {shown(their)} | {shown(our)}" for path, their, our in found]


def shown(value):
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def report(found):
    """Lines by the versions in which they are true."""
    versions = defaultdict(list)
    for version, lines in found.items():
        for line in lines[:SHOWN_DIFFERENCES]:
            versions[line.replace(f"-v{version}", "-vN")].append(version)
    return "\n".join(f"v{','.join(map(str, which))} {line}" for line, which in versions.items())


def breaks(transcripts_by_version):
    """Where a scenario could not go on."""
    return [f"v{version} {said}" for version, answers in transcripts_by_version.items() for said in answers
            if BREAKS in str(said)]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
def test_the_same_answers(judges, pool, scenario, record_property):
    running = {name: pool.submit(transcripts, scenario, side) for name, side in judges.items()}
    found = {name: future.result() for name, future in running.items()}
    new, old = (found[name] for name in sides.KAFKAS)
    between = {version: compared(scenario, old[version], new[version]) for version in new.keys() & old.keys()}
    against = {}
    for version, ours in found[sides.MILLRACE].items():
        judged = [compared(scenario, kafka[version], ours) for kafka in (new, old) if version in kafka]
        against[version] = min(judged, key=len, default=[])
        if judged:
            record_property(COMPARED, (scenario.api, version))
    if broken := breaks(new) + breaks(old):
        pytest.fail("\n".join(broken), pytrace=False)
    expect(any(between.values()), scenario.id in BETWEEN_KAFKAS, f"between the Kafkas, 3.9 | 4.1\n{report(between)}")
    if scenario.id in BETWEEN_KAFKAS:
        against = {version: lines for version, lines in against.items() if version in between}
    if scenario.id in OPEN:
        judge_open(scenario, against, record_property)
    else:
        wanted = scenario.id in BY_CHOICE and bool(against)
        expect(any(against.values()), wanted, f"Kafka | Millrace\n{report(against)}")


def expect(differs, declared, text):
    """A difference must be declared, and what is declared must differ."""
    if differs and not declared:
        pytest.fail(text, pytrace=False)
    if declared and not differs:
        pytest.fail("the declared difference is none: its line in differences.py is too much", pytrace=False)


def judge_open(scenario, against, record_property):
    if any(against.values()):
        pytest.xfail(OPEN[scenario.id])
    record_property(AGREES, scenario.id)


LIKE_KAFKA = [one for one in SCENARIOS if one.id not in (BETWEEN_KAFKAS.keys() | BY_CHOICE.keys() | OPEN.keys())]


@pytest.mark.parametrize("scenario", LIKE_KAFKA, ids=lambda scenario: scenario.id)
def test_the_same_answers_to_unknown_tags(judges, pool, scenario):
    """In the newest version that both serve, where it has tagged fields (KIP-482)."""
    both = [judges[name] for name in (sides.KAFKAS[0], sides.MILLRACE)]
    of_kafka, of_millrace = (served_by(side, scenario) for side in both)
    served = [
        version
        for version in of_kafka
        if version in of_millrace and version in both[0].messages.definition(f"{scenario.api}Request", version).flexible
    ]
    if not served:
        pytest.skip("no version of this has tagged fields")
    running = [pool.submit(scenario.transcript, side, served[-1], unknown_tags=True) for side in both]
    theirs, ours = (future.result() for future in running)
    assert BREAKS not in str(theirs)
    if lines := compared(scenario, theirs, ours):
        pytest.fail(f"Kafka | Millrace\n{report({served[-1]: lines})}", pytrace=False)


def test_what_is_advertised_is_what_kafka_advertises(judges):
    """No version that neither of the two Kafkas serves."""
    kafkas = [judges[name].versions for name in sides.KAFKAS]
    alone = {
        (api, version)
        for api, versions in judges[sides.MILLRACE].versions.items()
        for version in versions
        if not any(version in kafka.get(api, ()) for kafka in kafkas)
    }
    assert not alone
