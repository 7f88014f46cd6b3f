"""The definitions of Kafka's properties, as the main methods of its own classes print them for its documentation.

They print HTML: a heading with the name, a paragraph, and a table of Type, Default, Valid Values, Importance and Update
Mode. Kafka's internal properties are not printed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import NamedTuple

from millrace_benchmarks.kafka_broker import Kafka

DEFINITIONS = {
    "broker": "kafka.server.KafkaConfig",
    "topic": "org.apache.kafka.storage.internals.log.LogConfig",
    "group": "org.apache.kafka.coordinator.group.GroupConfig",
}
PROPERTY = re.compile(
    r'<h4><a id="[^"]*"></a><a id="[^"]*" href="[^"]*">(?P<name>[^<]+)</a></h4>(?P<body>.*?)</table>', re.DOTALL
)
ROW = re.compile(r"<tr><th>(.*?):?</th><td>(.*?)</td></tr>", re.DOTALL)


class Definition(NamedTuple):
    """One property, all as text; the default has no remark in brackets, such as `(7 days)`."""

    type: str
    default: str
    update_mode: str


def read_definitions(kafka: Kafka, scope: str) -> Mapping[str, Definition]:
    """Returns the properties of brokers, topics or groups by name; raises SetupError if there is no such class."""
    printed = kafka.run(DEFINITIONS[scope])
    return {found["name"]: _definition(found["body"]) for found in PROPERTY.finditer(printed)}


def _definition(body: str) -> Definition:
    fields = {name.strip(): html.unescape(value.strip()) for name, value in ROW.findall(body)}
    default = re.sub(r" +\([^()]*\)$", "", fields["Default"])
    return Definition(fields["Type"].upper(), default, fields.get("Update Mode", ""))
