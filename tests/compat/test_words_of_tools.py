"""Errors of Apache Kafka's own tools, provoked one by one on Kafka 3.9, on Kafka 4.1 and here: the same words.

Scripts look for such words. `recorded/words_of_tools.tsv` has the texts side by side. Each version's tools ask their
own Kafka and Millrace, which must say each line that Kafka says, and may say more; where it does not, the table has the
reason.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from tool_words import table
from tool_words.provoked import provoke
from tool_words.sides import started

ROWS = table.read()


@pytest.fixture(scope="module")
def provoked(find_peer, zookeeper, warm_tools, tmp_path_factory):
    """Returns a function that returns a row as it is now; the two versions' tools run at the same time."""
    kafkas = {"Kafka 3.9": find_peer("3.9"), "Kafka 4.1": find_peer("4.1")}
    folder = tmp_path_factory.mktemp("words")
    with started(folder, *kafkas.values(), f"{zookeeper.address}/words") as brokers, ThreadPoolExecutor() as pool:

        def texts(version, command):
            files = tmp_path_factory.mktemp("files")
            for side in (version, "Millrace"):
                lines = provoke(warm_tools.attempt, kafkas[version], brokers[side].bootstrap, command, files)
                yield table.BREAK.join(lines)

        def row(command, reason):
            running = [pool.submit(lambda version: [*texts(version, command)], version) for version in kafkas]
            return table.Row(command, *(text for one in running for text in one.result()), reason)

        yield row


@pytest.fixture(scope="module")
def rewritten(pytestconfig):
    """Yields the rows by their commands, and writes the table at the end if `--rewrite-transcripts` asks for it."""
    rows = {row.command: row for row in ROWS}
    yield rows
    if pytestconfig.getoption("--rewrite-transcripts"):
        table.write(rows.values())


@pytest.mark.parametrize("row", ROWS, ids=[row.command[:80] for row in ROWS])
def test_the_words_of_a_tool(provoked, rewritten, row, pytestconfig):
    now = provoked(row.command, row.reason)
    if pytestconfig.getoption("--rewrite-transcripts"):
        rewritten[row.command] = now
    else:
        assert now == row


@pytest.mark.parametrize("row", ROWS, ids=[row.command[:80] for row in ROWS])
def test_a_difference_has_a_reason(row):
    assert row.agrees != bool(row.reason), "a row that differs has a reason, and no other row has one"
