"""What a console that is `full` may change of topics: create one, append one record, set a property.

    GET    an empty form, or one that a link has filled in
    POST   the form ──► a preview: the cluster has checked the change, and nothing is changed
    POST   the preview, which is `confirmed` ──► done exactly as it was shown

What the cluster refuses is shown above the form, whose fields keep what was typed. The change of a property is refused
where its value has changed since the preview was shown.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from millrace.client import Admin, Cluster, Configs, ResourceKind
from millrace.client.configs import Property
from millrace.client.producer.plugins import partition_for_key
from millrace.client.sync_producer import SyncProducer
from millrace.config import MAX_INT, parse_assignments, whole_number
from millrace.errors import InvalidConfigError, InvalidRequestError, MillraceError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.records.record import NewRecord
from millrace_ops.console.console import Console
from millrace_ops.console.request import Answer, Asked, Page, Redirect
from millrace_ops.record_values.shown import Shown, shown

SHOWN_LENGTH = 4_000
MAX_SHORT = 2**15 - 1
DEFAULT = -1
BY_KEY = ""
CONFIRMED = "confirmed"


class NewTopic(NamedTuple):
    """A topic as a form asks for it; DEFAULT stands for the cluster's default."""

    name: str
    partitions: int
    replicas: int
    config: Mapping[str, str]


class NewValue(NamedTuple):
    """The change of a topic's property: from `now` to `new`, where None stands for its default."""

    name: str
    now: str | None
    new: str | None


def show_create_topic(console: Console, asked: Asked) -> Page:
    """Returns the form of a new topic."""
    check_may_change(console)
    return _topic_form(asked.query)


def create_topic(console: Console, asked: Asked) -> Answer:
    """Shows what a form of a new topic would create; creates it, and leads to its page, once that is confirmed."""
    check_may_change(console)
    form = asked.form
    try:
        topic = parse_topic(form)
        with console.clusters.lent() as cluster:
            is_confirmed = bool(form.get(CONFIRMED))
            Admin(cluster).create_topic(*topic, validate_only=not is_confirmed)
    except MillraceError as error:
        return _topic_form(form, str(error))
    if is_confirmed:
        return Redirect("topic?" + urlencode({"name": topic.name, "done": "created"}))
    facts = {
        "Topic": _text(topic.name),
        "Partitions": _text("the cluster's default" if topic.partitions == DEFAULT else f"{topic.partitions:,}"),
        "Replicas of each": _text("the cluster's default" if topic.replicas == DEFAULT else f"{topic.replicas:,}"),
        **{name: _text(value) for name, value in topic.config.items()},
    }
    return _preview("create-topic", form, facts, title="Create a topic", button="Create it", back="topics")


def parse_topic(form: Mapping[str, str]) -> NewTopic:
    """Returns the topic that a form asks for; raises InvalidRequestError or InvalidConfigError for what makes none."""
    config = parse_assignments(line.strip() for line in form.get("config", "").splitlines() if line.strip())
    partitions = _number(form, "partitions", MAX_INT)
    return NewTopic(form.get("name", "").strip(), partitions, _number(form, "replicas", MAX_SHORT), config)


def _number(form: Mapping[str, str], name: str, largest: int) -> int:
    text = form.get(name, "").strip()
    number = whole_number(text, largest) if text else DEFAULT
    if number is None or number == 0:
        raise InvalidRequestError(f"{name}: {text} is no number from 1 to {largest:,}")
    return number


def _topic_form(fields: Mapping[str, str], trouble: str = "") -> Page:
    return Page("create_topic.html", {"fields": fields, "trouble": trouble}, 400 if trouble else 200)


def show_produce(console: Console, asked: Asked) -> Page:
    """Returns the form of a record."""
    check_may_change(console)
    with console.clusters.lent() as cluster:
        return _record_form(cluster, asked.need("topic"), asked.query)


def produce(console: Console, asked: Asked) -> Answer:
    """Shows the record of a form, and its partition; appends it, and leads to its page, once that is confirmed."""
    check_may_change(console)
    form, topic = asked.form, asked.form.get("topic", "")
    with console.clusters.lent() as cluster:
        partitions = list(cluster.metadata([topic]).topic(topic).partitions)
        try:
            check_is_users(topic)
            record, partition = parse_record(form), partition_of(form, partitions)
            if form.get(CONFIRMED):
                offset = SyncProducer(cluster).send(topic, partition, [record])
                return Redirect("record?" + urlencode({"topic": topic, "partition": partition, "offset": offset}))
        except MillraceError as error:
            return _record_form(cluster, topic, form, str(error))
    facts = {
        "Partition": _text(f"{topic}-{partition}"),
        "Key": shown(record.key, SHOWN_LENGTH),
        "Value": shown(record.value, SHOWN_LENGTH),
        **{f"Header {name}": shown(value, SHOWN_LENGTH) for name, value in record.headers},
    }
    fields = {**form, "partition": str(partition)}
    back = "messages?" + urlencode({"topic": topic})
    return _preview("produce", fields, facts, title=f"Append a record to {topic}", button="Append it", back=back)


def parse_record(form: Mapping[str, str]) -> NewRecord:
    """Returns the record of a form; raises InvalidRequestError for headers that are none.

    Texts become UTF-8; line ends, which browsers send as CRLF, become LF. An empty key is none.
    """
    headers = []
    for line in _lf(form.get("headers", "")).split("\n"):
        name, separator, value = line.partition("=")
        if line.strip() and not (separator and name.strip()):
            raise InvalidRequestError(f"headers: {line!r}: expected NAME=VALUE")
        if line.strip():
            headers.append((name.strip(), value.encode()))
    body = None if form.get("is_null") else _lf(form.get("value", "")).encode()
    key = _lf(form.get("key", "")).encode() or None
    return NewRecord(body, key, headers=tuple(headers))


def partition_of(form: Mapping[str, str], partitions: list[int]) -> int:
    """Returns the partition that a form names, or that clients give to its key; any of them without a key."""
    text, key = form.get("partition", BY_KEY), _lf(form.get("key", "")).encode()
    if text == BY_KEY:
        return partition_for_key(key, len(partitions)) if key else random.choice(partitions)  # noqa: S311
    partition = whole_number(text, MAX_INT)
    if partition not in partitions:
        raise InvalidRequestError(f"there is no partition {text}")
    return partition


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _record_form(cluster: Cluster, topic: str, fields: Mapping[str, str], trouble: str = "") -> Page:
    partitions = list(cluster.metadata([topic]).topic(topic).partitions)
    values = {"topic": topic, "partitions": partitions, "fields": fields, "trouble": trouble}
    return Page("produce.html", values, 400 if trouble else 200)


def show_setting(console: Console, asked: Asked) -> Page:
    """Returns the form that sets a property of a topic."""
    check_may_change(console)
    topic, name = asked.need("topic"), asked.need("name")
    with console.clusters.lent() as cluster:
        return _setting_form(_property(cluster, topic, name), {"topic": topic, "name": name})


def change_setting(console: Console, asked: Asked) -> Answer:
    """Shows what a form changes of a topic's property; changes it, and leads to the topic, once that is confirmed."""
    check_may_change(console)
    form, topic = asked.form, asked.form.get("topic", "")
    with console.clusters.lent() as cluster:
        found = _property(cluster, topic, form.get("name", ""))
        change = new_value(found, form)
        is_confirmed = bool(form.get(CONFIRMED))
        try:
            if is_confirmed:
                check_is_as_shown(change, form)
            values, unset = ({}, [change.name]) if change.new is None else ({change.name: change.new}, [])
            Configs(cluster).change(ResourceKind.TOPIC, topic, values, unset, validate_only=not is_confirmed)
        except MillraceError as error:
            return _setting_form(found, form, str(error))
    back = "topic?" + urlencode({"name": topic})
    if is_confirmed:
        return Redirect(f"{back}&done=set")
    facts = {
        "Property": _text(change.name),
        "Now": _text(f"{found.value} (from {found.source})"),
        "New": _text("its default" if change.new is None else change.new),
    }
    fields = {**form, "now": _as_field(change.now)}
    return _preview("setting", fields, facts, title=f"Change {change.name} of {topic}", button="Change it", back=back)


def new_value(found: Property, form: Mapping[str, str]) -> NewValue:
    """Returns the change that a form asks for; `now` is the topic's own value, None where it has the default."""
    now = found.value if found.source == "topic" else None
    return NewValue(found.name, now, None if form.get("unset") else form.get("value", "").strip())


def check_is_as_shown(change: NewValue, form: Mapping[str, str]) -> None:
    """Raises InvalidRequestError where the property has another value by now than the preview has shown."""
    if form.get("now") != _as_field(change.now):
        by_now = "its default" if change.now is None else change.now
        raise InvalidRequestError(f"{change.name} is {by_now} by now, not as it was shown; look at the preview again")


def _as_field(value: str | None) -> str:
    return "default" if value is None else f"={value}"


def _property(cluster: Cluster, topic: str, name: str) -> Property:
    found = next((one for one in Configs(cluster).describe(ResourceKind.TOPIC, topic) if one.name == name), None)
    if found is None:
        raise InvalidConfigError(f"topics have no property {name}")
    return found


def _setting_form(found: Property, fields: Mapping[str, str], trouble: str = "") -> Page:
    values = {"topic": fields["topic"], "property": found, "fields": fields, "trouble": trouble}
    return Page("setting.html", values, 400 if trouble else 200)


def check_may_change(console: Console) -> None:
    """Raises InvalidRequestError where the console is read-only."""
    if not console.settings.may_change:
        raise InvalidRequestError("the console is read-only: admin.console=full lets it change something")


def check_is_users(topic: str) -> None:
    """Raises InvalidRequestError for a topic in which brokers keep their own state."""
    if topic in INTERNAL_TOPICS:
        raise InvalidRequestError(f"{topic} is the brokers' own: a record in it would be taken for their state")


def _text(text: str) -> Shown:
    return Shown("text", text, len(text))


def _preview(
    action: str, form: Mapping[str, str], facts: Mapping[str, Shown], *, title: str, button: str, back: str
) -> Page:
    fields = {name: value for name, value in form.items() if name not in ("form_token", CONFIRMED)}
    values = {"action": action, "fields": {**fields, CONFIRMED: "1"}, "facts": facts}
    return Page("preview.html", {**values, "title": title, "button": button, "back": back})
