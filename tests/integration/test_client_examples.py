"""The examples of docs/clients.md run, against a broker."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "clients.md"
OURS = DOCS.read_text(encoding="utf-8").partition("\n## ConsumerConnector")[0]  # that one needs ZooKeeper
EXAMPLES = re.findall(r"```python\n(.*?)```", OURS, re.DOTALL)


@pytest.mark.parametrize("code", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_of_the_documentation_runs(code, broker_session):
    exec(compile(code.replace("127.0.0.1:9092", broker_session.bootstrap), str(DOCS), "exec"), {})
