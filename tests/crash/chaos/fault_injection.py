"""Does to the brokers of a cluster what a fault says, and returns a sentence that says what exactly was done.

The bytes of a file are changed in place, so that a running broker meets them by the descriptors that it holds.

`meta.properties` and what lies beside it for the admin endpoint are left alone: a broker that does not know who it is
refuses to start, and says so.
"""

import logging
import random
import shutil
import signal
import threading

from fault_plan import RUNNING, STOPPED, WIPED

from millrace_support.broker_clusters import SESSION_TIMEOUT_MS

logger = logging.getLogger(__name__)
FILES = {
    "offset index": "*-*/*.index",
    "time index": "*-*/*.timeindex",
    "transaction index": "*-*/*.txnindex",
    "snapshot": "*-*/*.snapshot",
    "leader epochs": "*-*/leader-epoch-checkpoint",
    "topic id": "*-*/partition.metadata",
    "checkpoint of the folder": "*-checkpoint",
}
SEGMENTS = ("closed segment", "active segment")
BITS = 8
RESTARTED_SHARE = 0.3  # of the brokers that were damaged while they ran


def happen(cluster, fault):
    """Does what the fault says; it has ended when this returns, but for damage, which stays until it is healed."""
    broker, chance = cluster.brokers[fault.broker], random.Random(fault.seed)
    what, _, when = fault.kind.partition(" while ")
    if fault.kind == WIPED:
        end(broker, fault.ending)
        shutil.rmtree(broker.data_dir)
        broker.start()
        done = f"wiped, having been {fault.ending}"
    elif when and f"while {when}" == STOPPED:
        end(broker, fault.ending)
        done = f"{damaged(broker.data_dir, what, fault.files, chance)}, having been {fault.ending}"
        broker.start()
    elif when and f"while {when}" == RUNNING:
        done = damaged(broker.data_dir, what, fault.files, chance)
        if chance.random() < RESTARTED_SHARE:
            end(broker, fault.ending)
            broker.start()
            done += f", and then {fault.ending}"
    else:
        process_fault(broker, fault.kind, chance)
        done = fault.kind
    logger.info("broker %d: %s", fault.broker, done)
    return f"broker {fault.broker}: {done}"


def end(broker, ending):
    if ending == "killed":
        broker.kill()
    else:
        broker.stop()


def process_fault(broker, kind, chance):
    if kind.startswith("paused"):
        least_s = SESSION_TIMEOUT_MS / 1000 if kind == "paused beyond the session" else 0
        broker.send_signal(signal.SIGSTOP)
        threading.Event().wait(least_s + chance.uniform(0.2, 2))  # how long it hangs is a part of the fault
        broker.send_signal(signal.SIGCONT)
    else:
        end(broker, kind)
        threading.Event().wait(chance.choice((0, 0, 0.5, 2)))
        broker.start()


def damaged(data_dir, what, kind, chance):
    """Damages a file of this kind, or a topic's id where there is none with content yet; returns what was done."""
    while True:
        files = files_of(data_dir, kind) or files_of(data_dir, "topic id")
        path = chance.choice(files)
        try:
            return f"{DAMAGES[what](path, chance)} of {path.relative_to(data_dir)}"
        except FileNotFoundError:  # the broker has deleted it since
            continue


def files_of(data_dir, kind):
    """Returns the files of a kind that have content, but for those of logs that are being deleted."""
    if kind in SEGMENTS:
        logs = {}
        for path in sorted(data_dir.glob("*-*/*.log")):
            logs.setdefault(path.parent, []).append(path)
        found = [path for each in logs.values() for path in (each[:-1] if kind == "closed segment" else each[-1:])]
    else:
        found = sorted(data_dir.glob(FILES[kind]))
    return [path for path in found if not path.parent.name.endswith("-delete") and size_of(path)]


def size_of(path):
    """Returns the size of a file, 0 where it is gone."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def flipped(path, chance):
    with path.open("r+b", buffering=0) as file:
        at, bit = chance.randrange(size_of(path)), chance.randrange(BITS)
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1 << bit]))
    return f"bit {bit} of byte {at} flipped"


def truncated(path, chance):
    size = size_of(path)
    with path.open("r+b", buffering=0) as file:
        file.truncate(at := chance.randrange(size))
    return f"all from byte {at} of {size} cut off"


def deleted(path, _):
    size = size_of(path)
    path.unlink()
    return f"all {size} bytes deleted"


DAMAGES = {"flipped": flipped, "truncated": truncated, "deleted": deleted}
