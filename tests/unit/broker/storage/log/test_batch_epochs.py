"""A flipped bit in the leader epoch of a batch, which no checksum covers, is found and mended where that is certain."""

import pytest

from millrace.records.batch import walk
from millrace.records.record import encode_batch
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.damaged_log import END, FOLDER, GOOD, SEGMENTS, content_of, flip, open_log, values, write

EPOCH = 12  # its first byte in a batch
EVERYTHING = 1 << 40
BITS = [(byte, bit) for byte in range(4) for bit in range(8)]
EPOCHS = range(-(-END // 50))


def scrub(log):
    return sum(log.scrub(segment, lambda _: None).findings for segment in log.segments)


def is_certain(batches, number, found):
    """Returns whether a neighbour has the same epoch, and `found` would go down along the log."""
    epochs = [header.partition_leader_epoch for _, header in batches]
    own = epochs[number]
    before = epochs[number - 1] if number else None
    behind = epochs[number + 1] if number + 1 < len(epochs) else None
    least = max(own - 1, 0) if before is None else before
    most = (own + 1 if own + 1 in EPOCHS else 2**31) if behind is None else behind
    return own in {before, behind} and not least <= found <= most


@pytest.mark.parametrize("name", SEGMENTS)
def test_each_bit_of_each_epoch_is_mended_where_that_is_certain(name):
    whole = content_of(GOOD, name)
    batches = list(walk(whole))
    mended = 0
    for number, (position, header) in enumerate(batches):
        for byte, bit in BITS:
            fs = GOOD.after_kill()
            log = open_log(fs, clean=True)
            damaged = flip(whole, position + EPOCH + byte, bit)
            write(fs, name, damaged)
            found = int.from_bytes(damaged[position + EPOCH :][:4], signed=True)
            expected = whole if is_certain(batches, number, found) else damaged
            assert found == header.partition_leader_epoch ^ (1 << (8 * (3 - byte) + bit)) or found < 0
            assert scrub(log) == 1
            assert content_of(fs, name) == expected
            assert log.damage == []
            mended += expected == whole
            log.close()
    assert mended


@pytest.mark.parametrize("fetched_from", [0, 1], ids=["with the batch before", "at the batch"])
@pytest.mark.parametrize("name", [SEGMENTS[0], SEGMENTS[3], SEGMENTS[-1]], ids=["first", "closed", "active"])
def test_a_reader_gets_the_epoch_of_the_log(name, fetched_from):
    whole, fs = content_of(GOOD, name), GOOD.after_kill()
    first, (position, header) = list(walk(whole))[:2]
    log = open_log(fs, clean=True)
    write(fs, name, flip(whole, position + EPOCH + 2, 3))
    offset = (first[1], header)[fetched_from].base_offset
    read = log.read(offset, EVERYTHING, up_to_offset=EVERYTHING)
    assert bytes(read) == whole[(first[0], position)[fetched_from] :]
    assert content_of(fs, name) == whole
    log.close()


def test_neighbours_that_differ_too_leave_it_as_it_is():
    """Then the log's epochs may be what is wrong."""
    name, fs = SEGMENTS[3], GOOD.after_kill()
    whole = content_of(GOOD, name)
    damaged = whole
    for position, _ in walk(whole):
        damaged = flip(damaged, position + EPOCH + 3, 6)
    log = open_log(fs, clean=True)
    write(fs, name, damaged)
    assert scrub(log) == len(list(walk(whole)))
    assert content_of(fs, name) == damaged
    log.close()


def test_a_batch_is_right_where_the_file_of_epochs_names_the_next_one():
    """The file says that epoch 4 begins with the only batch of epoch 3."""
    fs = CrashFileSystem()
    fs.mkdir(FOLDER)
    log = open_log(fs, clean=False, recovery_point=0, high_watermark=0)
    for first, epoch in ((0, 2), (3, 2), (6, 3), (9, 4), (12, 4)):
        log.append(encode_batch(values(first)), leader_epoch=epoch)
    log.close()
    write(fs, "leader-epoch-checkpoint", b"0\n2\n2 0\n4 6\n")
    log = open_log(fs, clean=True)
    content = content_of(fs, SEGMENTS[0])
    assert log.leader_epochs.entries == ((2, 0), (4, 6))
    assert scrub(log) == 1
    assert content_of(fs, SEGMENTS[0]) == content
    log.close()


def test_verify_names_it_once():
    name, fs = SEGMENTS[3], GOOD.after_kill()
    whole = content_of(GOOD, name)
    position, header = list(walk(whole))[2]
    log = open_log(fs, clean=True)
    write(fs, name, flip(whole, position + EPOCH + 1, 0))
    [finding] = log.verify().findings
    assert finding.position == position
    assert f"of the batch at offset {header.base_offset}" in finding.reason
    assert content_of(fs, name) == whole
    assert not log.verify().findings
    log.close()


def test_another_file_of_the_segments_name_is_written_again():
    name, fs = SEGMENTS[3], GOOD.after_kill()
    whole = content_of(GOOD, name)
    position, _ = list(walk(whole))[2]
    log = open_log(fs, clean=True)
    path = next(one.path for one in log.segments if one.path.endswith(name))
    fs.rename(path, f"{path}.old")
    write(fs, name, flip(whole, position + EPOCH, 1))
    assert scrub(log)
    assert content_of(fs, name) == whole
    log.close()
