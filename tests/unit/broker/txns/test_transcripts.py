"""Transcripts of transactional ids: events on lines that begin with `>`, what follows from them indented below.

    > init a timeout=60000            the client a becomes the producer of the id
    > init a expects=a                … and says which producer it has been (KIP-360); expects=7/3 names one
    > add a t-0 t-1 version=2         partitions join the transaction, by a client of that transaction.version
    > commit a version=2              > abort a as=1/0          under an epoch that it has no more
    > verify a t-0
    > time out                        > wait 1000      time passes
    > marks                           all partitions have the marker, which is where the shell would write them
    > store waits                     what is stored from here on waits for
    > store succeeds                  or `store fails ERROR`
    > reload                          another broker takes over, or this one starts again
    > epoch 32766                     so many epochs later
    > expire                          the id is forgotten

The last line of each event is the transaction's state. Producers are shown as ID/EPOCH; fresh ids are 1, 2 and so on.
"""

from itertools import count

from millrace.errors import ErrorCode
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.records import read_key, read_value, transaction_record
from millrace_broker.txns.state import NOBODY, Producer
from millrace_broker.txns.transaction import (
    CompleteLater,
    End,
    Forget,
    InitProducer,
    Respond,
    StoreMetadata,
    Transaction,
    WriteMarkers,
    new_transaction,
)
from millrace_support import transcripts
from millrace_support.transcripts import plays

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000


class Stage(transcripts.Stage):
    """Plays one transcript."""

    def __init__(self, settings):
        super().__init__()
        self.now_ms = START_MS
        self.fresh_ids = count(1)
        self.transaction = None
        self.producers = {}
        self.waiting = []
        self.holds = False
        self.kept = None

    def state(self):
        if self.transaction is None:
            return "[unknown]"
        kept = self.transaction.metadata
        partitions = "".join(f" {topic}-{index}" for topic, index in sorted(kept.partitions))
        return f"[{kept.state} {shown(kept.producer)}{partitions}]"

    def on_init(self, *plain, **options):
        (name,) = plain
        expected = options.get("expects")
        producer = None if expected is None else self.producers.get(expected) or named(expected)
        request = InitProducer(int(options.get("timeout", TIMEOUT_MS)), producer)
        fresh_id = next(self.fresh_ids) if self.transaction is None or self.needs_id(request) else -1
        if self.transaction is None:
            self.transaction = new_transaction("id", fresh_id, request.timeout_ms, self.now_ms)
        self.perform(self.transaction.init_producer(("init", name), request, fresh_id, self.now_ms))

    def needs_id(self, request):
        return self.transaction.needs_producer_id(request)

    def on_add(self, *plain, **options):
        name, *partitions = plain
        version, wanted = int(options.get("version", 0)), list(map(place, partitions))
        ticket = ("add", name)
        self.perform(self.transaction.add_partitions(ticket, self.producers[name], wanted, version, self.now_ms))

    def on_verify(self, *plain, **options):
        name, *partitions = plain
        found = self.transaction.verify(self.producers[name], list(map(place, partitions)))
        self.say(" ".join(f"{topic}-{index}: {error.name}" for (topic, index), error in found.items()))

    def on_commit(self, *plain, is_commit=True, **options):
        (name,) = plain
        producer = named(options["as"]) if "as" in options else self.producers[name]
        request = End(producer, is_commit, int(options.get("version", 0)))
        fresh_id = next(self.fresh_ids) if self.needs_id(request) else -1
        ticket = ("commit" if is_commit else "abort", name)
        self.perform(self.transaction.end(ticket, request, fresh_id, self.now_ms))

    def on_abort(self, *plain, **options):
        self.on_commit(*plain, is_commit=False, **options)

    def on_time(self, *plain, **options):
        self.perform(self.transaction.time_out(self.now_ms))

    def on_wait(self, *plain, **options):
        self.now_ms += int(plain[0])

    def on_marks(self, *plain, **options):
        self.perform(self.transaction.marked(self.now_ms))

    def on_store(self, *plain, **options):
        if plain == ("waits",):
            self.holds = True
            return
        self.holds = False
        error = ErrorCode[plain[1]] if plain[0] == "fails" else ErrorCode.NONE
        waiting, self.waiting = self.waiting, []
        for store in waiting:
            self.stored(store, error)

    def on_reload(self, *plain, **options):
        self.waiting.clear()
        self.transaction = None
        if self.kept is not None:
            self.transaction = Transaction(read_key(self.kept.key), read_value(self.kept.value))
            self.perform(self.transaction.loaded())

    def on_epoch(self, *plain, **options):
        epoch = int(plain[0])
        kept = self.transaction.metadata
        self.producers["a"] = Producer(kept.producer_id, epoch)
        self.transaction.metadata = kept._replace(producer_epoch=epoch)

    def on_expire(self, *plain, **options):
        if self.transaction.is_expired(self.now_ms, int(options["after"])):
            self.perform(self.transaction.expire())

    def perform(self, effects):
        for effect in effects:
            match effect:
                case Respond((request, name), (error, producer)):
                    if producer != NOBODY and request != "add":
                        self.producers[name] = producer
                    told = f" as {shown(producer)}" if producer != NOBODY else ""
                    self.say(f"{request} {name}: {error.name}{told}")
                case WriteMarkers(producer, partitions, is_commit):
                    names = "".join(f" {topic}-{index}" for topic, index in sorted(partitions))
                    self.say(f"{'commit' if is_commit else 'abort'} markers of {shown(producer)}:{names or ' nowhere'}")
                case CompleteLater():
                    self.say("completed later")
                case Forget():
                    self.transaction = None
                case StoreMetadata() if self.holds:
                    self.waiting.append(effect)
                case StoreMetadata():
                    self.stored(effect, ErrorCode.NONE)

    def stored(self, store, error):
        if error:
            self.say(f"not stored: {error.name}")
        elif store.metadata is None:
            self.kept = None
            self.say("removed")
        else:
            self.kept = transaction_record("id", store.metadata)
            self.say(f"stored: {store.metadata.state} {shown(store.metadata.producer)}")
        self.perform(self.transaction.stored(store, error, self.now_ms))


def shown(producer):
    return f"{producer.producer_id}/{producer.epoch}"


def named(text):
    return Producer(*map(int, text.split("/")))


def place(text):
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


test_a_transaction_does_as_its_transcript_says = plays("transactions", Stage)
