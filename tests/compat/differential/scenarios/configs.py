"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: names, values, sources, synonyms, validation."""

from differential.scenario import ask, scenario

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
FENCE = ("index.interval.bytes", "4097")
TOPIC_SETTINGS = (
    "cleanup.policy", "compression.type", "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
    "index.interval.bytes", "max.compaction.lag.ms", "max.message.bytes", "message.timestamp.type",
    "message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms", "min.insync.replicas", "preallocate", "retention.bytes", "retention.ms", "segment.bytes",
    "segment.index.bytes", "segment.jitter.ms", "segment.ms", "unclean.leader.election.enable",
)  # fmt: skip
BROKER_SETTINGS = (
    "auto.create.topics.enable", "num.partitions", "default.replication.factor", "log.retention.ms",
    "message.max.bytes", "log.cleanup.policy", "log.segment.bytes", "log.flush.interval.messages", "compression.type",
    "min.insync.replicas", "delete.topic.enable", "log.message.timestamp.type", "group.initial.rebalance.delay.ms",
    "group.min.session.timeout.ms", "group.max.session.timeout.ms", "group.max.size", "offsets.retention.minutes",
    "socket.request.max.bytes", "connections.max.idle.ms", "max.connections", "max.connections.per.ip",
)  # fmt: skip


def described(kind, name, keys=None, **more):
    return {"resources": [{"resourceType": kind, "resourceName": name, "configurationKeys": keys}], **more}


def only(names):
    """The settings of an answer that are compared; others are the peculiarity of one broker."""

    def keep(answer):
        for resource in answer["results"]:
            resource["configs"] = [without_text(one) for one in resource["configs"] if one["name"] in names]
        return answer

    return keep


def without_text(config):
    """Documentation is each broker's own; whether there is any is compared."""
    return {**config, "documentation": bool(config["documentation"])} if "documentation" in config else config


def describe_topic(name, keys=None, *, configs=None, first=0, **more):
    def run(session):
        topic = session.topic(configs=configs)
        session.ask(described(TOPIC, topic, keys, **more), keep=only(TOPIC_SETTINGS))

    scenario("DescribeConfigs", name, first=first)(run)


describe_topic("a topic's defaults")
describe_topic("a topic's own settings", configs={"retention.ms": "5000", "cleanup.policy": "compact"})
describe_topic("some of a topic's", ["retention.ms", "segment.bytes"])
describe_topic("unknown ones of a topic", ["no.such.setting", "retention.ms"])
describe_topic("none of a topic's", [])
describe_topic("with synonyms", configs={"retention.ms": "5000"}, first=1, includeSynonyms=True)
describe_topic("with documentation", ["retention.ms"], first=3, includeDocumentation=True)
ask("DescribeConfigs", "unknown topic", described(TOPIC, "nowhere"))
ask("DescribeConfigs", "bad topic name", described(TOPIC, "a/b"))
ask("DescribeConfigs", "empty topic name", described(TOPIC, ""))
ask("DescribeConfigs", "unknown kind", described(77, "x"))
ask("DescribeConfigs", "kind 0", described(0, "x"))
ask("DescribeConfigs", "no resources", {"resources": []})
for setting in BROKER_SETTINGS:
    ask(
        "DescribeConfigs", f"the broker's {setting}", described(BROKER, "1", [setting], includeSynonyms=True),
        first=1, keep=only(BROKER_SETTINGS),
    )  # fmt: skip
ask("DescribeConfigs", "the cluster's defaults", described(BROKER, ""), keep=only(BROKER_SETTINGS))
ask("DescribeConfigs", "another broker", described(BROKER, "7"))
ask("DescribeConfigs", "a broker that is no number", described(BROKER, "one"))
ask("DescribeConfigs", "a group", described(GROUP, "some-group", ["consumer.session.timeout.ms"]), first=4)


@scenario("DescribeConfigs", "a topic twice")
def describe_twice(session):
    topic = session.topic()
    resource = {"resourceType": TOPIC, "resourceName": topic, "configurationKeys": ["retention.ms"]}
    session.ask(resources=[resource, resource])


# AlterConfigs, IncrementalAlterConfigs


def settings_of(session, topic, names=TOPIC_SETTINGS):
    """Put down what the topic itself has set."""
    answer = session.call("DescribeConfigs", 1, **described(TOPIC, topic))
    own = {one["name"]: one["value"] for one in answer["results"][0]["configs"] if one["configSource"] == 1}
    session.note(dict(sorted(own.items())))


def set_all(topic, settings, *, kind=TOPIC, validate_only=False):
    configs = [{"name": name, "value": value} for name, value in settings]
    return {
        "resources": [{"resourceType": kind, "resourceName": topic, "configs": configs}],
        "validateOnly": validate_only,
    }


def changed_settings_of(session, topic):
    """Records the settings once a further change is seen: changes are seen in order, after they are acknowledged."""
    name, value = FENCE
    assert session.call("IncrementalAlterConfigs", 0, **changes(topic, [(name, SET, value)]))["responses"]
    session.until(
        lambda: session.call("DescribeConfigs", 1, **described(TOPIC, topic, [name]))["results"][0]["configs"],
        lambda configs: configs[0]["value"] == value,
    )
    settings_of(session, topic)


def alter_all(name, *settings, validate_only=False):
    def run(session):
        topic = session.topic(configs={"retention.ms": "7000"})
        session.ask(set_all(topic, settings, validate_only=validate_only))
        changed_settings_of(session, topic)

    scenario("AlterConfigs", name)(run)


alter_all("one instead of another", ("segment.bytes", "2000000"))
alter_all("only validated", ("segment.bytes", "2000000"), validate_only=True)
alter_all("an unknown one", ("no.such.setting", "1"))
alter_all("no number", ("retention.ms", "long"))
alter_all("out of range", ("segment.bytes", "1"))
alter_all("null", ("retention.ms", None))
alter_all("a setting twice", ("retention.ms", "1"), ("retention.ms", "2"))
alter_all("none")
ask("AlterConfigs", "unknown topic", set_all("nowhere", [("retention.ms", "1")]))
ask("AlterConfigs", "unknown kind", set_all("x", [("retention.ms", "1")], kind=77))
ask("AlterConfigs", "another broker", set_all("9", [("retention.ms", "1")], kind=BROKER))
ask("AlterConfigs", "no resources", {"resources": [], "validateOnly": False})


def changes(topic, operations, *, kind=TOPIC, validate_only=False):
    configs = [{"name": name, "configOperation": operation, "value": value} for name, operation, value in operations]
    return {
        "resources": [{"resourceType": kind, "resourceName": topic, "configs": configs}],
        "validateOnly": validate_only,
    }


def alter(name, *operations, validate_only=False):
    def run(session):
        topic = session.topic(configs={"retention.ms": "7000", "cleanup.policy": "compact"})
        session.ask(changes(topic, operations, validate_only=validate_only))
        changed_settings_of(session, topic)

    scenario("IncrementalAlterConfigs", name)(run)


alter("set", ("segment.bytes", SET, "2000000"))
alter("delete", ("retention.ms", DELETE, None))
alter("delete what is not set", ("segment.ms", DELETE, None))
alter("append", ("cleanup.policy", APPEND, "delete"))
alter("append what is there", ("cleanup.policy", APPEND, "compact"))
alter("append to what is no list", ("retention.ms", APPEND, "5"))
alter("subtract", ("cleanup.policy", SUBTRACT, "compact"))
alter("subtract from what is no list", ("retention.ms", SUBTRACT, "5"))
alter("an unknown operation", ("retention.ms", 9, "5"))
alter("an unknown one", ("no.such.setting", SET, "1"))
alter("delete an unknown one", ("no.such.setting", DELETE, None))
alter("no number", ("retention.ms", SET, "long"))
alter("out of range", ("segment.bytes", SET, "1"))
alter("null", ("retention.ms", SET, None))
alter("a setting twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
alter("only validated", ("segment.bytes", SET, "2000000"), validate_only=True)
alter("only validated and wrong", ("segment.bytes", SET, "1"), validate_only=True)
alter("an empty value", ("cleanup.policy", SET, ""))
ask("IncrementalAlterConfigs", "unknown topic", changes("nowhere", [("retention.ms", SET, "1")]))
ask("IncrementalAlterConfigs", "bad topic name", changes("a/b", [("retention.ms", SET, "1")]))
ask("IncrementalAlterConfigs", "unknown kind", changes("x", [("retention.ms", SET, "1")], kind=77))
ask("IncrementalAlterConfigs", "no resources", {"resources": [], "validateOnly": False})
ask("IncrementalAlterConfigs", "another broker", changes("9", [("message.max.bytes", SET, "1")], kind=BROKER))
ask("IncrementalAlterConfigs", "a broker's unknown one", changes("1", [("no.such.setting", SET, "1")], kind=BROKER))
ask("IncrementalAlterConfigs", "a broker's that can't change", changes("1", [("broker.id", SET, "5")], kind=BROKER))
ask("IncrementalAlterConfigs", "a broker's, no number",
    changes("1", [("message.max.bytes", SET, "long")], kind=BROKER))  # fmt: skip


@scenario("IncrementalAlterConfigs", "a topic twice")
def alter_twice(session):
    resource = changes(session.topic(), [("retention.ms", SET, "5")])["resources"][0]
    session.ask(resources=[resource, resource], validateOnly=False)


@scenario("IncrementalAlterConfigs", "a default of the cluster and of the broker")
def alter_broker(session):
    """Set for the cluster, then for the broker, which wins; deleted again from both."""
    name = "log.segment.bytes"
    wanted = {("", "2100000"): 3, ("1", "2200000"): 2}
    for (broker, value), source in wanted.items():
        session.ask(changes(broker, [(name, SET, value)], kind=BROKER))
        await_broker_setting(session, name, source)
        session.ask(api="DescribeConfigs", version=1, **described(BROKER, "1", [name], includeSynonyms=True))
    for broker, source in (("1", 3), ("", 5)):
        session.ask(changes(broker, [(name, DELETE, None)], kind=BROKER))
        await_broker_setting(session, name, source)
    session.ask(api="DescribeConfigs", version=1, **described(BROKER, "1", [name], includeSynonyms=True))


def await_broker_setting(session, name, source):
    """Waits until the value of a broker's setting comes from `source`; None: until there is none."""
    session.until(
        lambda: session.call("DescribeConfigs", 1, **described(BROKER, "1", [name]))["results"][0]["configs"],
        lambda configs: [one["configSource"] for one in configs] == ([] if source is None else [source]),
    )


def of_listener(name):
    return f"listener.name.plaintext.{name}"


def without_read_only(answer):
    """Kafka says of every property of one listener that it can't be changed, although it can."""
    for resource in answer["results"]:
        resource["configs"] = [{key: one[key] for key in one if key != "readOnly"} for one in resource["configs"]]
    return answer


def limit_of_a_listener(name, *, synonyms):
    """Set for the cluster, then for the broker, which wins; deleted again from both."""

    def run(session):
        own = of_listener(name)
        asked = {"api": "DescribeConfigs", "version": 1, "keep": without_read_only}
        for broker, value, source in (("", "700", 3), ("1", "800", 2)):
            session.ask(changes(broker, [(own, SET, value)], kind=BROKER))
            await_broker_setting(session, own, source)
            session.ask(described(BROKER, "1", [own], includeSynonyms=synonyms), **asked)
        for broker, source in (("1", 3), ("", None)):
            session.ask(changes(broker, [(own, DELETE, None)], kind=BROKER))
            await_broker_setting(session, own, source)
        session.ask(described(BROKER, "1", [own]), **asked)

    scenario("IncrementalAlterConfigs", f"a listener's {name}")(run)


def only_validated(name, broker, setting, value):
    ask("IncrementalAlterConfigs", name,
        changes(broker, [(setting, SET, value)], kind=BROKER, validate_only=True))  # fmt: skip


limit_of_a_listener("max.connections", synonyms=False)  # without them, as its default is another one here
limit_of_a_listener("max.connection.creation.rate", synonyms=True)
for limit in ("max.connections", "max.connection.creation.rate"):
    only_validated(f"all listeners' {limit} of 0", "1", limit, "0")
    for value in ("x", "-1", "0"):
        only_validated(f"a listener's {limit} of {value}", "1", of_listener(limit), value)
for setting, value in (("max.connections.per.ip", "5"), ("ssl.keystore.type", "PEM"), ("message.max.bytes", "5")):
    for broker in ("", "1"):
        only_validated(f"a listener's {setting} of broker {broker or 'default'}", broker, of_listener(setting), value)
