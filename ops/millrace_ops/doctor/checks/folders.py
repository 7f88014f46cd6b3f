"""What the facts of data folders mean: their disk, their owner, and how the last broker left them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millrace_ops.doctor.facts.folders import FolderFacts, Mount
from millrace_ops.doctor.findings import Finding, Level, judged
from millrace_ops.sizes import size

LOST_WITH_THE_MACHINE = ("ramfs", "tmpfs")
OVER_A_NETWORK = ("9p", "afs", "ceph", "cifs", "nfs", "nfs4", "smb3")
PROVEN = ("ext4", "xfs")
LEAST_FREE_SHARE = 0.1


def check_folder(facts: FolderFacts, segment_bytes: int) -> Iterator[Finding]:
    """Yields the findings of a folder; `segment_bytes` is the size up to which segments grow."""
    if facts.trouble is not None:
        change = "let the broker's user read and write there, and run this command as that user"
        yield Finding(Level.PROBLEM, facts.path, facts.trouble, "a folder that can be read", change)
        return
    yield check_access(facts)
    if facts.mount is not None:
        yield check_file_system(facts.path, facts.mount)
        yield check_access_times(facts.path, facts.mount)
    yield check_room(facts, segment_bytes)
    if facts.inodes:
        yield check_inodes(facts)
    yield check_last_stop(facts)
    yield check_damage(facts)


def check_folders(folders: Sequence[FolderFacts], broker_id: int | None, cluster_id: str | None) -> Iterator[Finding]:
    """Yields the findings of all folders together; `cluster_id` is that of the cluster, None where it is not known."""
    if len(folders) > 1:
        yield check_devices(folders)
    yield check_owners(folders, broker_id, cluster_id)


def check_access(facts: FolderFacts) -> Finding:
    """Returns whether this user may write everything in a folder."""
    thing = f"owner of {facts.path}"
    if facts.foreign_entry is not None:
        change = f"chown -R {facts.owner}: {facts.path}, once no broker runs on it"
        found = f"{facts.owner}, but {facts.foreign_entry} belongs to another user"
        return Finding(Level.PROBLEM, thing, found, "one user for everything", change)
    there = facts.owner if facts.exists else f"{facts.owner}; it is not there yet, and the broker makes it"
    return judged(
        thing,
        there if facts.is_writable else f"{there}, and {facts.user} can't write there",
        "the broker's user",
        f"chown -R {facts.user}: {facts.path}, or run this command as the broker's user",
        is_well=facts.is_writable,
        otherwise=Level.PROBLEM,
    )


def check_file_system(path: str, mount: Mount) -> Finding:
    """Returns whether a file system keeps what was synced, and locks and renames as a local disk does."""
    is_lost, is_far = mount.type in LOST_WITH_THE_MACHINE, mount.type in OVER_A_NETWORK
    found = f"{mount.type} at {mount.point}"
    if is_lost:
        found += ", gone with the next start of the machine"
    elif mount.type == "overlay":
        found += ", gone with the container"
    return judged(
        f"file system of {path}",
        found,
        " or ".join(PROVEN),
        "mount a volume there" if mount.type == "overlay" else f"put log.dirs on a local disk with {PROVEN[0]}",
        is_well=mount.type in PROVEN,
        otherwise=Level.PROBLEM if is_lost or is_far else Level.ADVICE,
    )


def check_access_times(path: str, mount: Mount) -> Finding:
    """Returns whether reads of a file write its time of access."""
    return judged(
        f"mount options of {path}",
        ",".join(one for one in mount.options if "atime" in one) or "every read writes the time of access",
        "noatime or relatime",
        f"mount -o remount,noatime {mount.point}, and noatime in /etc/fstab",
        is_well="noatime" in mount.options or "relatime" in mount.options,
    )


def check_room(facts: FolderFacts, segment_bytes: int) -> Finding:
    """Returns whether the disk has room for another segment, which compaction needs too, and some more."""
    wanted = max(segment_bytes, int(LEAST_FREE_SHARE * facts.total_bytes))
    return judged(
        f"room in {facts.path}",
        f"{size(facts.free_bytes)} of {size(facts.total_bytes)} free",
        f"{size(wanted)} or more",
        "a larger disk, or less to keep: log.retention.bytes and log.retention.ms, or retention.bytes of the topics",
        is_well=facts.free_bytes >= wanted,
        otherwise=Level.PROBLEM if facts.free_bytes < segment_bytes else Level.ADVICE,
    )


def check_inodes(facts: FolderFacts) -> Finding:
    """Returns whether the file system can hold many more files; a segment has three or four."""
    return judged(
        f"inodes for {facts.path}",
        f"{facts.free_inodes} of {facts.inodes} free",
        "a tenth or more",
        "larger segments (log.segment.bytes), or a file system with more inodes",
        is_well=facts.free_inodes >= LEAST_FREE_SHARE * facts.inodes,
    )


def check_last_stop(facts: FolderFacts) -> Finding:
    """Returns whether the last broker stopped cleanly; else the next one recovers the logs before it serves."""
    logs = f"{facts.partitions} partitions in {facts.files} files"
    how = "a broker runs on it" if facts.is_held else "stopped cleanly" if facts.is_clean else "not stopped cleanly"
    return judged(
        f"state of {facts.path}",
        f"{logs}; {how}" if facts.partitions or facts.is_held else "no logs yet",
        "stopped cleanly, or in use",
        "nothing: the next start recovers the logs. Stop brokers by SIGTERM and wait for them (TimeoutStopSec)",
        is_well=facts.is_held or facts.is_clean,
    )


def check_damage(facts: FolderFacts) -> Finding:
    """Returns whether no range of a log is named as damaged."""
    return judged(
        f"damaged ranges in {facts.path}",
        ", ".join(facts.damaged) or "0",
        "0",
        f"copy the partitions from other replicas; or stop the broker, and `millrace verify --repair {facts.path}`",
        is_well=not facts.damaged,
        otherwise=Level.PROBLEM,
    )


def check_devices(folders: Sequence[FolderFacts]) -> Finding:
    """Returns whether folders have a disk each, as brokers spread partitions over them by number."""
    devices = len({one.device for one in folders})
    return judged(
        "disks of log.dirs",
        f"{devices} for {len(folders)} folders",
        "one for each folder",
        "name one folder of each disk in log.dirs; a log is moved with kafka-reassign-partitions",
        is_well=devices == len(folders),
    )


def check_owners(folders: Sequence[FolderFacts], broker_id: int | None, cluster_id: str | None) -> Finding:
    """Returns whether all folders belong to one broker of one cluster, and to that of the configuration."""
    brokers = {one for one in (broker_id, *(one.broker_id for one in folders)) if one is not None}
    clusters = {one for one in (cluster_id, *(one.cluster_id for one in folders)) if one is not None}
    return judged(
        "broker and cluster of log.dirs",
        f"broker {_all(brokers)}, cluster {_all(clusters)}",
        "one broker of one cluster",
        "name the folders, the broker.id and the ZooKeeper that belong together (meta.properties says of which broker)",
        is_well=len(brokers) <= 1 and len(clusters) <= 1,
        otherwise=Level.PROBLEM,
    )


def _all(values: set[int] | set[str]) -> str:
    return " and ".join(sorted(map(str, values))) or "not known yet"
