"""APIs that make, change, describe and delete topics."""

from uuid import UUID

from differential.scenario import ask, scenario
from differential.session import NO_TOPIC_ID, batch

UNKNOWN_ID = UUID("6f6e6520-0000-4000-8000-6e6f20746f70")
TOPIC_ALREADY_EXISTS = 36
LONG_NAME = "n" * 250
BAD_NAMES = {"a slash": "a/b", "nothing": "", "a dot": ".", "two dots": "..", "250 characters": LONG_NAME}


# Metadata


def of_topics(*names):
    """Only these topics of an answer: other scenarios have made others, and a coordinator its own."""
    return lambda answer: {**answer, "topics": [topic for topic in answer["topics"] if topic["name"] in names]}


def named(*names):
    return [{"name": name, "topicId": NO_TOPIC_ID} for name in names]


@scenario("Metadata", "a topic with three partitions")
def metadata_of_a_topic(session):
    topic = session.topic(partitions=3)
    session.topic_id(topic)
    session.ask(topics=named(topic))


@scenario("Metadata", "all topics")
def metadata_of_all(session):
    topic = session.topic()
    session.topic_id(topic)
    session.ask({"topics": None if session.version else []}, keep=of_topics(topic))


ask("Metadata", "no topics", {"topics": []}, first=1)
ask("Metadata", "unknown topic", {"topics": named("metadata-nowhere"), "allowAutoTopicCreation": False}, first=4)
ask("Metadata", "unknown id", {"topics": [{"topicId": UNKNOWN_ID, "name": None}]}, first=10)
ask("Metadata", "an id in a version that has no use for it", {"topics": [{"topicId": UNKNOWN_ID, "name": "x"}]},
    first=10)  # fmt: skip
ask("Metadata", "neither name nor id", {"topics": [{"topicId": NO_TOPIC_ID, "name": None}]}, first=10, last=11)
for kind, bad in BAD_NAMES.items():
    ask("Metadata", f"a name of {kind}", {"topics": named(bad)})


@scenario("Metadata", "by id", first=12)
def metadata_by_id(session):
    topic_id = session.topic_id(session.topic(partitions=2))
    session.ask(topics=[{"name": None, "topicId": topic_id}])


@scenario("Metadata", "a topic twice")
def metadata_twice(session):
    topic = session.topic()
    session.topic_id(topic)
    session.ask(topics=named(topic, topic))


@scenario("Metadata", "authorized operations", first=8)
def metadata_operations(session):
    topic = session.topic()
    session.topic_id(topic)
    session.ask(
        topics=named(topic), includeTopicAuthorizedOperations=True,
        **({"includeClusterAuthorizedOperations": True} if session.version <= 10 else {}),
    )  # fmt: skip


@scenario("Metadata", "a topic that is made on asking")
def metadata_makes_a_topic(session):
    """The first answer may say that the topic has no leader yet; it has one in the end."""
    name = f"made-on-asking-v{session.version}"
    asked = {"topics": named(name)}
    session.until(
        lambda: session.call("Metadata", session.version, **asked)["topics"][0],
        lambda topic: topic["errorCode"] == 0 and topic["partitions"][0]["errorCode"] == 0,
    )
    session.topic_id(name)
    session.ask(asked)


@scenario("Metadata", "an internal topic is not made on asking", first=4)
def metadata_of_internal(session):
    session.ask(topics=named("__internal-or-not"), allowAutoTopicCreation=False)


# DescribeTopicPartitions


@scenario("DescribeTopicPartitions", "a topic")
def describe_partitions(session):
    topic = session.topic(partitions=3)
    session.topic_id(topic)
    session.ask(topics=[{"name": topic}], responsePartitionLimit=2000, cursor=None)


@scenario("DescribeTopicPartitions", "in pages")
def describe_partitions_in_pages(session):
    topic, other = session.topic("a", partitions=5), session.topic("b", partitions=2)
    session.topic_id(topic)
    session.topic_id(other)
    both = [{"name": topic}, {"name": other}]
    for cursor in (None, {"topicName": topic, "partitionIndex": 2}, {"topicName": other, "partitionIndex": 0}):
        session.ask(topics=both, responsePartitionLimit=3, cursor=cursor)


ask("DescribeTopicPartitions", "unknown topic", {"topics": [{"name": "nowhere"}], "responsePartitionLimit": 10})
ask("DescribeTopicPartitions", "bad name", {"topics": [{"name": "a/b"}], "responsePartitionLimit": 10})


@scenario("DescribeTopicPartitions", "a cursor that is nowhere")
def describe_partitions_from_nowhere(session):
    topic = session.topic(partitions=2)
    session.topic_id(topic)
    for cursor in ({"topicName": topic, "partitionIndex": 7}, {"topicName": topic, "partitionIndex": -1}):
        session.ask(topics=[{"name": topic}], responsePartitionLimit=10, cursor=cursor)


# CreateTopics


def created(session, **more):
    """A topic to create, with the version's way to leave the numbers to the broker."""
    return {"name": f"created-{session.name}", "numPartitions": 1, "replicationFactor": 1, **more}


def create(scenario_name, /, *, first=0, last=1 << 15, twice=False, validate_only=False, **topic):
    """One topic, asked for once or twice, and then what there is of it."""

    def run(session):
        asked = created(session, **topic)
        validate = {"validateOnly": validate_only} if session.version >= 1 else {}
        for _ in range(2 if twice else 1):
            answer = session.ask({"topics": [asked], "timeoutMs": 60_000, **validate}, keep=only_settings_of_both)
        made = answer["topics"][0]["errorCode"] in (0, TOPIC_ALREADY_EXISTS) and not validate_only
        session.until(lambda: look_up(session, asked["name"]), lambda topic: bool(topic["partitions"]) == made)
        session.note(settled(look_up(session, asked["name"])))

    scenario("CreateTopics", scenario_name, first=first, last=last)(run)


def look_up(session, name):
    return session.call("Metadata", 5, topics=[{"name": name}], allowAutoTopicCreation=False)["topics"][0]


def settled(topic):
    return topic["errorCode"], sorted((one["partitionIndex"], one["replicaNodes"]) for one in topic["partitions"])


def only_settings_of_both(answer):
    """Which settings a topic has is DescribeConfigs' matter, so here it is only whether they are told."""
    for topic in answer["topics"]:
        if "configs" in topic:
            topic["configs"] = bool(topic["configs"])
    return answer


create("one")
create("three partitions", numPartitions=3)
create("the broker's numbers", numPartitions=-1, replicationFactor=-1, first=4)
create("the broker's numbers before version 4", numPartitions=-1, replicationFactor=-1, last=3)
create("once more", twice=True)
create("no partitions", numPartitions=0)
create("-2 partitions", numPartitions=-2)
create("no replicas", replicationFactor=0)
create("more replicas than brokers", replicationFactor=3)
create("-2 replicas", replicationFactor=-2)
create("only validated", validate_only=True, first=1)
create("only validated and wrong", validate_only=True, first=1, replicationFactor=3)
create("a setting", configs=[{"name": "retention.ms", "value": "1000"}])
create("an unknown setting", configs=[{"name": "no.such.setting", "value": "1"}])
create("a setting that is no number", configs=[{"name": "retention.ms", "value": "long"}])
create("a setting out of range", configs=[{"name": "segment.bytes", "value": "1"}])
create("a setting of null", configs=[{"name": "retention.ms", "value": None}])
create("a bad policy", configs=[{"name": "cleanup.policy", "value": "burn"}])
create("both policies", configs=[{"name": "cleanup.policy", "value": "compact,delete"}])
create("a codec", configs=[{"name": "compression.type", "value": "zstd"}])
create("an unknown codec", configs=[{"name": "compression.type", "value": "rar"}])
create("more in-sync replicas than there are", configs=[{"name": "min.insync.replicas", "value": "3"}])
BY_HAND = {"numPartitions": -1, "replicationFactor": -1}
create("by hand", assignments=[{"partitionIndex": index, "brokerIds": [1]} for index in (0, 1)], **BY_HAND)
create("by hand beside numbers", assignments=[{"partitionIndex": 0, "brokerIds": [1]}])
NOWHERE, UNKNOWN_BROKER = ([{"partitionIndex": 0, "brokerIds": brokers}] for brokers in ([], [7]))
create("by hand on an unknown broker", first=1, validate_only=True, assignments=UNKNOWN_BROKER, **BY_HAND)
create("by hand with a gap", assignments=[{"partitionIndex": 1, "brokerIds": [1]}], **BY_HAND)
create("by hand twice on one broker", assignments=[{"partitionIndex": 0, "brokerIds": [1, 1]}], **BY_HAND)
create("by hand on no broker", first=1, validate_only=True, assignments=NOWHERE, **BY_HAND)
for kind, bad in BAD_NAMES.items():
    create(f"a name of {kind}", name=bad)
ask("CreateTopics", "no topics", {"topics": [], "timeoutMs": 60_000})


@scenario("CreateTopics", "two of one name")
def create_twins(session):
    asked = created(session)
    session.ask({"topics": [asked, asked], "timeoutMs": 60_000}, keep=only_settings_of_both)


@scenario("CreateTopics", "names that collide")
def create_colliding(session):
    """A dot and an underscore are the same in a metric's name."""
    for name in (f"collide.v{session.version}", f"collide_v{session.version}"):
        session.ask({"topics": [created(session, name=name)], "timeoutMs": 60_000}, keep=only_settings_of_both)


@scenario("CreateTopics", "a good one and a bad one")
def create_mixed(session):
    session.ask(
        {"topics": [created(session), created(session, name="a/b")], "timeoutMs": 60_000}, keep=only_settings_of_both
    )


# DeleteTopics


def deleted(session, *names):
    """By name, in the way of the version."""
    if session.version >= 6:
        return {"topics": [{"name": name, "topicId": NO_TOPIC_ID} for name in names], "timeoutMs": 60_000}
    return {"topicNames": list(names), "timeoutMs": 60_000}


@scenario("DeleteTopics", "twice")
def delete_twice(session):
    topic = session.topic(records=1)
    session.topic_id(topic)
    session.ask(deleted(session, topic))
    session.until(lambda: look_up(session, topic), lambda found: found["errorCode"] == 3)
    session.ask(deleted(session, topic))


@scenario("DeleteTopics", "and created again")
def delete_and_make(session):
    """The new one is empty."""
    topic = session.topic(records=2)
    session.topic_id(topic)
    session.ask(deleted(session, topic))
    session.until(lambda: look_up(session, topic), lambda found: found["errorCode"] == 3)
    session.until(
        lambda: session.call("CreateTopics", 5, topics=[{"name": topic, "numPartitions": 1, "replicationFactor": 1}],
                             timeoutMs=60_000),
        lambda answer: answer["topics"][0]["errorCode"] == 0,
    )  # fmt: skip
    session.await_topic(topic, 1)
    session.produce(topic, batch(1))
    asked = [{"name": topic, "partitions": [{"partitionIndex": 0, "timestamp": -1}]}]
    session.ask(api="ListOffsets", version=1, replicaId=-1, topics=asked)


ask("DeleteTopics", "unknown", lambda s: deleted(s, "delete-nowhere"))
ask("DeleteTopics", "bad name", lambda s: deleted(s, "a/b"))
ask("DeleteTopics", "none", deleted)
ask("DeleteTopics", "unknown id", {"topics": [{"name": None, "topicId": UNKNOWN_ID}], "timeoutMs": 60_000}, first=6)
ask("DeleteTopics", "neither name nor id", {"topics": [{"name": None, "topicId": NO_TOPIC_ID}], "timeoutMs": 60_000},
    first=6)  # fmt: skip
ask("DeleteTopics", "a name twice", lambda s: deleted(s, "delete-nowhere", "delete-nowhere"))


@scenario("DeleteTopics", "by id", first=6)
def delete_by_id(session):
    topic_id = session.topic_id(session.topic())
    session.ask(topics=[{"name": None, "topicId": topic_id}], timeoutMs=60_000)


@scenario("DeleteTopics", "by name and id", first=6)
def delete_by_both(session):
    topic = session.topic()
    session.ask(topics=[{"name": topic, "topicId": session.topic_id(topic)}], timeoutMs=60_000)


# CreatePartitions


def more_partitions(name, count, *, had=1, validate_only=False, assignments=None, first=0):
    def run(session):
        topic = session.topic(partitions=had)
        asked = [{"name": topic, "count": count, "assignments": assignments}]
        session.ask(topics=asked, timeoutMs=60_000, validateOnly=validate_only)
        wanted = count if not validate_only and count > had and not assignments else had
        session.until(lambda: look_up(session, topic), lambda found: len(found["partitions"]) >= wanted)
        session.note(settled(look_up(session, topic)))

    scenario("CreatePartitions", name, first=first)(run)


more_partitions("from one to three", 3)
more_partitions("as many as there are", 2, had=2)
more_partitions("fewer", 1, had=2)
more_partitions("none", 0)
more_partitions("-1", -1)
more_partitions("only validated", 4, validate_only=True)
more_partitions("by hand on an unknown broker", 2, assignments=[{"brokerIds": [9]}])
more_partitions("by hand, too few", 3, assignments=[{"brokerIds": [1]}])
more_partitions("by hand, too many replicas", 2, assignments=[{"brokerIds": [1, 1]}])
ask("CreatePartitions", "unknown topic", {"topics": [{"name": "nowhere", "count": 3}], "timeoutMs": 60_000})
ask("CreatePartitions", "no topics", {"topics": [], "timeoutMs": 60_000})
ask("CreatePartitions", "a topic twice", lambda s: {
    "topics": [{"name": s.shared_topic(records=0), "count": 3}] * 2, "timeoutMs": 60_000,
})  # fmt: skip


@scenario("CreatePartitions", "by hand")
def more_by_hand(session):
    topic = session.topic()
    session.ask(topics=[{"name": topic, "count": 2, "assignments": [{"brokerIds": [1]}]}], timeoutMs=60_000)


# ElectLeaders, reassignments: what one broker answers


@scenario("ElectLeaders", "of one partition")
def elect(session):
    topic = session.topic(partitions=2)
    for partitions in ([0], [0, 1], [5]):
        session.ask(electionType=0, topicPartitions=[{"topic": topic, "partitions": partitions}], timeoutMs=60_000)


@scenario("ElectLeaders", "unclean", first=1)
def elect_unclean(session):
    topic = session.topic()
    session.ask(electionType=1, topicPartitions=[{"topic": topic, "partitions": [0]}], timeoutMs=60_000)


ask("ElectLeaders", "unknown topic",
    {"electionType": 0, "topicPartitions": [{"topic": "nowhere", "partitions": [0]}], "timeoutMs": 60_000})  # fmt: skip
ask("ElectLeaders", "of everything", {"electionType": 0, "topicPartitions": None, "timeoutMs": 60_000},
    keep=lambda answer: {**answer, "replicaElectionResults": None})  # fmt: skip


def reassign(name, replicas, partition=0):
    def run(session):
        topic = session.topic(partitions=2)
        asked = [{"name": topic, "partitions": [{"partitionIndex": partition, "replicas": replicas}]}]
        session.ask(topics=asked, timeoutMs=60_000)
        session.ask(
            api="ListPartitionReassignments", version=0,
            topics=[{"name": topic, "partitionIndexes": [0, 1]}], timeoutMs=60_000,
        )  # fmt: skip

    scenario("AlterPartitionReassignments", name)(run)


reassign("to where it is", [1])
reassign("to an unknown broker", [7])
reassign("to no broker", [])
reassign("to one broker twice", [1, 1])
reassign("to a negative broker", [-1])
reassign("to two brokers of which one is unknown", [1, 7])
reassign("a cancellation of nothing", None)
reassign("of an unknown partition", [1], partition=5)
UNKNOWN_REASSIGNMENT = {"name": "nowhere", "partitions": [{"partitionIndex": 0, "replicas": [1]}]}
ask("AlterPartitionReassignments", "unknown topic", {"topics": [UNKNOWN_REASSIGNMENT], "timeoutMs": 60_000})
ask("AlterPartitionReassignments", "no topics", {"topics": [], "timeoutMs": 60_000})
ask("ListPartitionReassignments", "all", {"topics": None, "timeoutMs": 60_000})
ask("ListPartitionReassignments", "no topics", {"topics": [], "timeoutMs": 60_000})
ask("ListPartitionReassignments", "unknown topic",
    {"topics": [{"name": "nowhere", "partitionIndexes": [0]}], "timeoutMs": 60_000})  # fmt: skip
