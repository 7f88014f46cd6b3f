"""Makes the second half of docs/configuration.md from the tables of properties, behind the half written by hand.

    python -m millrace_tools.configuration_page docs/configuration.md

A test compares the page with what this module makes, so that the page is always up to date.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from millrace.config import ConfigKey, value_text
from millrace_broker.cluster.config_manager import GROUP_KEYS
from millrace_broker.cluster.config_sources import BROKER_KEYS
from millrace_broker.properties.kafka_properties import (
    BROKER,
    EMPTY,
    GROUP,
    NULL,
    REQUIRED,
    TOPIC,
    UNKNOWN,
    VERSIONS,
    kafka_properties,
)
from millrace_broker.properties.restrictions import reason
from millrace_broker.storage.config import TOPIC_CONFIG

KEYS: Mapping[str, Mapping[str, ConfigKey]] = {BROKER: BROKER_KEYS, TOPIC: TOPIC_CONFIG.keys, GROUP: GROUP_KEYS}
FIRST_HEADING = "## Defaults that differ from Kafka's"
NOTE = """\
Made by `python -m millrace_tools.configuration_page docs/configuration.md` from the tables of properties; from here on
nothing is edited by hand.
"""
WITHOUT_EFFECT = """\
## Properties without effect

Kafka knows these. Here they are checked by type and bounds, stored, described, and changed where Kafka changes them
live; nothing obeys them.

| why | properties |
|---|---|
"""
NAMES_OF_DEFAULTS = {REQUIRED: "must be given", NULL: "none", EMPTY: "empty", UNKNOWN: "unknown"}


def render(page: str) -> str:
    """Returns the page with its generated half up to date."""
    parts = [_differing(), _own(), _obeyed(), _without_effect()]
    return page.partition(FIRST_HEADING)[0] + "\n".join(parts)


def _differing() -> str:
    versions = " | ".join(f"Kafka {one}" for one in VERSIONS)
    head = f"{FIRST_HEADING}\n\n{NOTE}\n| property | of | here | {versions} |\n|---|---|---|---|---|\n"
    rows = []
    for (scope, name), row in kafka_properties().items():
        here = _default(KEYS[scope][name])
        if any(theirs not in (UNKNOWN, here) for theirs in row.defaults):
            effect = "" if KEYS[scope][name].has_effect else ", without effect"
            cells = [NAMES_OF_DEFAULTS.get(one, f"`{one}`") for one in (here, *row.defaults)]
            rows.append(f"| `{name}` | {scope}{effect} | {' | '.join(cells)} |\n")
    return head + "".join(rows)


def _own() -> str:
    head = "## Properties that Kafka does not have\n\n| property | default | what it says |\n|---|---|---|\n"
    of_topics = {name: key for name, key in TOPIC_CONFIG.keys.items() if name not in BROKER_KEYS}
    own = [(name, key, BROKER, "") for name, key in BROKER_KEYS.items()]
    own += [(name, key, TOPIC, f" (of a {TOPIC})") for name, key in of_topics.items()]
    return head + "".join(
        f"| `{name}`{of} | {_shown(key)} | {key.doc} |\n"
        for name, key, scope, of in sorted(own, key=lambda one: one[0])
        if (scope, name) not in kafka_properties()
    )


def _obeyed() -> str:
    parts = ["## Properties that are obeyed\n\nA live one can be changed while the broker runs.\n"]
    for scope, keys in KEYS.items():
        parts.append(f"\n### Of a {scope}\n\n| property | default | live | what it says |\n|---|---|---|---|\n")
        for name, key in sorted(keys.items()):
            if key.has_effect and (scope, name) in kafka_properties():
                live = "live" if key.is_dynamic or scope != BROKER else ""
                parts.append(f"| `{name}` | {_shown(key)} | {live} | {key.doc} |\n")
    return "".join(parts)


def _without_effect() -> str:
    parts = [WITHOUT_EFFECT]
    by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for scope, keys in KEYS.items():
        for name, key in sorted(keys.items()):
            if not key.has_effect:
                by_reason[_reason(key)].append(f"`{name}`" + ("" if scope == BROKER else f" (of a {scope})"))
    parts += [f"| {why} | {', '.join(names)} |\n" for why, names in sorted(by_reason.items())]
    return "".join(parts)


def _reason(key: ConfigKey) -> str:
    said = key.doc.removeprefix("Without effect here: ")
    return reason(key.name) if said == key.doc else said.rstrip(".")


def _default(key: ConfigKey) -> str:
    """Returns a default as the table of Kafka's properties writes it."""
    return (value_text(key.default) or EMPTY) if key.has_default else NULL


def _shown(key: ConfigKey) -> str:
    text = _default(key)
    return NAMES_OF_DEFAULTS.get(text, f"`{text}`")


def main(arguments: Iterable[str]) -> None:
    """Brings the pages in these files up to date."""
    for name in arguments:
        path = Path(name)
        path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
