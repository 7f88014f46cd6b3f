"""What a scenario works with: a broker, a version of the API under test, and the transcript of what it is asked.

`ask` is compared between the brokers, `call` is not: it makes what the scenario needs, by versions that all serve.
What is asked may have a tagged field that no version knows in every structure.
Ids that a broker makes up are shown by names: topics' by those that the scenario gives, members' in the order in which
they appear. So the same id must stand at the same places, whatever it is.
"""

import re
from uuid import UUID

from differential.wire import ANSWERED, CLOSED, SILENT, ConnectionClosedError, Wire

from millrace.records.record import NewRecord, encode_batch
from millrace_support.waiting import until

POLL_INTERVAL_S = 0.01
BASE_TIMESTAMP_MS = 1_700_000_000_000
NO_TOPIC_ID = UUID(int=0)
MEMBER_ID = re.compile(r"(.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NOT_OF_A_NAME = re.compile(r"[^a-zA-Z0-9]+")


class Session:
    """One scenario, in one version, on one broker."""

    def __init__(self, side, api, name, version, *, unknown_tags=False):
        self.side = side
        self.api = api
        self.version = version
        self.name = f"{NOT_OF_A_NAME.sub('-', name)}-v{version}{'-tagged' if unknown_tags else ''}"
        self._unknown_tags = unknown_tags
        self._notes = []
        self._names = {}
        self._wires = []
        self._wire = self._connect()

    def close(self):
        for wire in self._wires:
            wire.close()

    def _connect(self):
        self._wires.append(Wire(self.side.messages, self.side.bootstrap))
        return self._wires[-1]

    def another(self):
        """Returns the same scenario on a further connection."""
        other = object.__new__(Session)
        other.__dict__.update(self.__dict__)
        other._wire = self._connect()
        return other

    def serves(self, api, version=0):
        """Returns whether the broker under test advertises a version of an API."""
        return version in self.side.versions.get(api, ())

    # What is compared

    def ask(self, fields=None, /, *, api=None, version=None, keep=None, **more):
        """Sends a request, records its answer in the transcript and returns it; None where the broker hangs up."""
        return self.record(self.send({**(fields or {}), **more}, api=api, version=version), keep=keep)

    def send(self, fields, *, api=None, version=None):
        """Sends a request without waiting for its answer, as requests may wait for one another."""
        try:
            asked = self.version if version is None else version
            return self._wire.send(api or self.api, asked, fields, unknown_tags=self._unknown_tags)
        except ConnectionClosedError:
            return None

    def record(self, sent, *, keep=None):
        """Waits for the answer to a request, records what `keep` makes of it, and returns it."""
        try:
            answer = self._wire.receive(sent) if sent else None
        except ConnectionClosedError:
            answer = None
        self.note(CLOSED if answer is None else keep(answer) if keep else answer)
        return answer

    def ask_without_answer(self, fields):
        """Sends a request that has no answer, and records whether the connection lives on."""
        self.send(fields)
        fence = self.send({}, api="ApiVersions", version=0)
        try:
            self._wire.receive(fence)
        except ConnectionClosedError:
            self.note(CLOSED)
        else:
            self.note(SILENT)

    def ask_raw(self, frame):
        """Sends bytes that need not be a request, and records whether any answer comes."""
        try:
            self._wire.send_frame(frame)
            self.note(ANSWERED if self._wire.receive_frame() else SILENT)
        except ConnectionClosedError:
            self.note(CLOSED)
        self._wire = self._connect()

    def note(self, what):
        self._notes.append(what)

    def name_id(self, name, value):
        """Has the transcript show `<name>` wherever `value` stands."""
        self._names[value] = f"<{name}>"
        return value

    @property
    def transcript(self):
        """All that was recorded, with names in place of ids."""
        return [self._named(what) for what in self._notes]

    def _named(self, value):
        if isinstance(value, dict):
            return {key: self._named(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._named(one) for one in value]
        if isinstance(value, str) and value not in self._names and (found := MEMBER_ID.fullmatch(value)):
            self._names[value] = f"<member {found[1]} {len(self._names)}>"
        return self._names.get(value, value) if isinstance(value, UUID | str) else value

    # What is not

    def call(self, api, version, /, **fields):
        """Sends a request that is not compared, and returns its answer."""
        return self._wire.receive(self._wire.send(api, version, fields))

    def until(self, asked, done):
        """Returns the first answer of `asked()` for which `done` is true."""
        return until(asked, done, pause_s=POLL_INTERVAL_S)

    def topic(self, suffix="", *, partitions=1, configs=None, records=0):
        """Creates a topic of this scenario, with one record to a batch, and returns its name once it is served."""
        name = suffix if suffix.startswith("with-") else f"{self.api.lower()}-{self.name}{suffix and f'-{suffix}'}"
        settings = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        asked = {"name": name, "numPartitions": partitions, "replicationFactor": 1, "configs": settings}
        (made,) = self.call("CreateTopics", 5, topics=[asked], timeoutMs=60_000)["topics"]
        assert made["errorCode"] == 0, made
        self.await_topic(name, partitions)
        for offset in range(records):
            self.produce(name, batch(NewRecord(b"value-%d" % offset, b"key", BASE_TIMESTAMP_MS + offset)))
        return name

    def shared_topic(self, *, records):
        """Returns the name of a topic with so many records, which no scenario changes."""
        name = f"with-{records}-records"
        if name not in self.side.shared_topics:
            self.side.shared_topics[name] = self.topic(name, records=records)
        return self.side.shared_topics[name]

    def await_topic(self, name, partitions):
        asked = [{"partitionIndex": index, "timestamp": -1} for index in range(partitions)]
        self.until(
            lambda: self.call("ListOffsets", 1, replicaId=-1, topics=[{"name": name, "partitions": asked}]),
            lambda answer: all(one["errorCode"] == 0 for one in answer["topics"][0]["partitions"]),
        )
        self.until(
            lambda: self.call("Metadata", 4, topics=[{"name": name}], allowAutoTopicCreation=False),
            lambda answer: len(answer["topics"][0]["partitions"]) == partitions,
        )

    def topic_id(self, name):
        """Returns the id of a topic, which the transcript then shows by a name."""
        (topic,) = self.call("Metadata", 12, topics=[{"name": name, "topicId": NO_TOPIC_ID}])["topics"]
        return self.name_id(f"id of {name}", topic["topicId"])

    def produce(self, topic, records, *, partition=0):
        """Appends a batch, in the first version of Produce that all serve, and returns the answer."""
        data = [{"name": topic, "partitionData": [{"index": partition, "records": records}]}]
        answer = self.call("Produce", 5, acks=-1, timeoutMs=60_000, topicData=data)
        (partition_answer,) = answer["responses"][0]["partitionResponses"]
        assert partition_answer["errorCode"] == 0, partition_answer
        return partition_answer

    def by_name_or_id(self, name, *, first_with_ids, name_field="name"):
        """The field that names a topic in this version."""
        return {"topicId": self.topic_id(name)} if self.version >= first_with_ids else {name_field: name}


def batch(*records, **options):
    """A batch of records; a bare number stands for a record with that value."""
    return encode_batch([one if isinstance(one, NewRecord) else record(one) for one in records], **options)


def record(number):
    """A record whose every byte is known."""
    return NewRecord(b"value-%d" % number, b"key-%d" % number, BASE_TIMESTAMP_MS + number)
