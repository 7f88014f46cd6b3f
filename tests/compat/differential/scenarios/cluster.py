"""APIs about the broker and its cluster, and bytes that are no request."""

from differential.scenario import ask, scenario

# ApiVersions

ask("ApiVersions", "of a client with a name", {"clientSoftwareName": "judge", "clientSoftwareVersion": "1.0"}, first=3)
ask("ApiVersions", "of a client without a name", {"clientSoftwareName": "", "clientSoftwareVersion": ""}, first=3)
ask("ApiVersions", "of a client with a bad name", {"clientSoftwareName": "a b", "clientSoftwareVersion": "1"}, first=3)
ask("ApiVersions", "of an old client", {}, last=2)


@scenario("ApiVersions", "a version that is not known", last=0)
def unknown_version(session):
    """Answered in the form of version 0, ranges and all (KIP-511)."""
    session.note(session_answers(session, 99))


def session_answers(session, version):
    frame = header(18, version) + b"\x00\x02a\x02b\x00"
    session._wire.send_frame(frame)
    answer = session.side.messages.decode("ApiVersionsResponse", 0, session._wire.receive_frame()[4:])
    return {"errorCode": answer["errorCode"], "ranges": 18 in [one["apiKey"] for one in answer["apiKeys"]]}


def header(api_key, version, client_id=b"\x00\x01x", correlation_id=7):
    return api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big") + client_id


BAD_FRAMES = {
    "nothing": b"",
    "a header cut short": header(3, 1)[:7],
    "an unknown API": header(999, 0),
    "an unknown version": header(3, 99) + b"\x00\x00\x00\x00",
    "a body cut short": header(3, 1) + b"\x00\x00",
    "an array longer than its frame": header(3, 1) + b"\x7f\xff\xff\xff",
    "an array of a negative length": header(3, 1) + b"\x80\x00\x00\x00",
    "a name that is not UTF-8": header(3, 1) + b"\x00\x00\x00\x01\x00\x02\xff\xfe",
    "a client id longer than its frame": header(3, 1, b"\x7f\xff")[:-2],
    "a fetch that is cut": header(1, 4) + b"\xff" * 10,
    "bytes behind a request": header(18, 0) + b"abcdef",
}


def bad_frame(name, frame):
    """Whether any answer comes: Kafka hangs up on bytes that are no request."""

    def run(session):
        session.ask_raw(frame)
        session.ask()

    scenario("ApiVersions", f"bytes that are {name}", last=0)(run)


for kind, content in BAD_FRAMES.items():
    bad_frame(kind, content)

# DescribeCluster

ask("DescribeCluster", "plainly", {})
ask("DescribeCluster", "authorized operations", {"includeClusterAuthorizedOperations": True})
ask("DescribeCluster", "of controllers", {"endpointType": 2}, first=1)
ask("DescribeCluster", "of an unknown kind", {"endpointType": 7}, first=1)
ask("DescribeCluster", "fenced brokers too", {"includeFencedBrokers": True}, first=2)

# DescribeClientQuotas

ask("DescribeClientQuotas", "all", {"components": [], "strict": False})
ask("DescribeClientQuotas", "of a user", {
    "components": [{"entityType": "user", "matchType": 0, "match": "alice"}], "strict": True,
})  # fmt: skip
ask("DescribeClientQuotas", "of an unknown kind", {
    "components": [{"entityType": "planet", "matchType": 0, "match": "mars"}], "strict": False,
})  # fmt: skip
ask("DescribeClientQuotas", "a bad match type", {
    "components": [{"entityType": "user", "matchType": 9, "match": "alice"}], "strict": False,
})  # fmt: skip

# AlterClientQuotas: nothing is altered, as other scenarios describe all quotas


def altered(name, entity, key="producer_byte_rate", value=1048576.0, *, remove=False):
    entities = [{"entityType": kind, "entityName": one} for kind, one in entity.items()]
    entry = {"entity": entities, "ops": [{"key": key, "value": value, "remove": remove}]}
    ask("AlterClientQuotas", name, {"entries": [entry], "validateOnly": True})


altered("of a user", {"user": "alice"})
altered("of a user's client", {"user": "alice", "client-id": "app"})
altered("of the default user", {"user": None})
altered("of an address", {"ip": "192.0.2.1"}, "connection_creation_rate", 5.0)
altered("removed where there is none", {"client-id": "app"}, remove=True)
altered("of nobody", {})
altered("of a user without a name", {"user": ""})
altered("of an unknown kind", {"planet": "mars"})
altered("of an address and a user", {"ip": "192.0.2.1", "user": "alice"}, "connection_creation_rate", 5.0)
altered("of what is no address", {"ip": "1.2.3.4.5"}, "connection_creation_rate", 5.0)
altered("an unknown quota", {"user": "alice"}, "consumer_bytes")
altered("a quota of addresses for a user", {"user": "alice"}, "connection_creation_rate", 5.0)
altered("a quota of users for an address", {"ip": "192.0.2.1"})
altered("bytes in fractions", {"user": "alice"}, value=0.5)
altered("time in fractions", {"user": "alice"}, "request_percentage", 0.5)

# ListConfigResources


def brokers_and_this_topic(topic):
    def keep(answer):
        others = ("", topic)
        answer["configResources"] = [
            one for one in answer["configResources"] if one.get("resourceType") != 2 or one["resourceName"] in others
        ]
        return answer

    return keep


ask("ListConfigResources", "of client metrics", {}, last=0)


@scenario("ListConfigResources", "of each type, and of all", first=1)
def list_config_resources(session):
    keep = brokers_and_this_topic(session.topic())
    for types in ([], [2], [4], [8], [16], [32], [2, 4], [4, 4], [1], [0], [99], [2, 99]):
        session.ask(resourceTypes=types, keep=keep)


# DescribeUserScramCredentials

ask("DescribeUserScramCredentials", "of all", {"users": None})
ask("DescribeUserScramCredentials", "of none", {"users": []})
ask("DescribeUserScramCredentials", "of some", {
    "users": [{"name": name} for name in ("alice", "bob", "alice", "")],
})  # fmt: skip


# DescribeLogDirs, AlterReplicaLogDirs


def one_directory(session):
    """The one data directory of a broker by a name of its own; its size is the machine's."""
    answer = session.call("DescribeLogDirs", 1, topics=[])
    (found,) = answer["results"]
    session.name_id("log dir", found["logDir"])
    return found["logDir"]


def without_disk(answer):
    for found in answer["results"]:
        for name in ("totalBytes", "usableBytes"):
            if name in found:
                found[name] = found[name] > 0
    return answer


@scenario("DescribeLogDirs", "of topics")
def log_dirs(session):
    topic = session.topic(partitions=2, records=3)
    one_directory(session)
    for partitions in ([0], [0, 1], [0, 9], []):
        session.ask({"topics": [{"topic": topic, "partitions": partitions}]}, keep=without_disk)


@scenario("DescribeLogDirs", "of an unknown topic")
def log_dirs_of_unknown(session):
    one_directory(session)
    session.ask({"topics": [{"topic": "nowhere", "partitions": [0]}]}, keep=without_disk)


@scenario("DescribeLogDirs", "of no topics")
def log_dirs_of_nothing(session):
    one_directory(session)
    session.ask({"topics": []}, keep=without_disk)


@scenario("DescribeLogDirs", "of all topics")
def log_dirs_of_all(session):
    topic = session.topic(records=3)
    one_directory(session)

    def only_mine(answer):
        for found in answer["results"]:
            found["topics"] = [one for one in found["topics"] if one["name"] == topic]
        return without_disk(answer)

    session.ask({"topics": None}, keep=only_mine)


@scenario("AlterReplicaLogDirs", "to where it is")
def alter_log_dirs(session):
    topic = session.topic(partitions=2)
    directory = one_directory(session)
    for partitions in ([0], [0, 5]):
        session.ask(dirs=[{"path": directory, "topics": [{"name": topic, "partitions": partitions}]}])


@scenario("AlterReplicaLogDirs", "to an unknown directory")
def alter_log_dirs_to_nowhere(session):
    topic = session.topic()
    for path in ("/nowhere/at/all", "not/absolute", ""):
        session.ask(dirs=[{"path": path, "topics": [{"name": topic, "partitions": [0]}]}])


@scenario("AlterReplicaLogDirs", "unknown topic")
def alter_log_dirs_of_nothing(session):
    session.ask(dirs=[{"path": one_directory(session), "topics": [{"name": "nowhere", "partitions": [0]}]}])
