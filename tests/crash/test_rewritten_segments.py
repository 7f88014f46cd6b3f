"""A power cut while the scrubber writes a segment again leaves what was there before, or the whole segment."""

from random import Random

import pytest

from millrace.errors import CorruptRecordError
from millrace.records.batch import walk
from millrace.records.record import decode_records
from millrace_broker.storage.segments.damage import DamagedRangeError
from millrace_support.damaged_log import END, FOLDER, GOOD, SEGMENTS, WRITTEN, content_of, flip, open_log, write

CLOSED = SEGMENTS[3]
INDEX = CLOSED.replace(".log", ".index")
LOST = {
    offset for _, header in walk(content_of(GOOD, CLOSED)) for offset in range(header.base_offset, header.next_offset)
}
END_OF_ALL = 1 << 40


def synced_disk():
    fs = GOOD.after_kill()
    fs.sync_tree("/")
    return fs


def without_file():
    fs = synced_disk()
    log = open_log(fs, clean=True)
    fs.unlink(f"{FOLDER}/{CLOSED}")
    fs.fsync_dir(FOLDER)
    return fs, log, LOST


def with_damaged_index():
    fs = synced_disk()
    log = open_log(fs, clean=True)
    write(fs, INDEX, flip(content_of(GOOD, INDEX), 3, 1))
    return fs, log, set()


def read_around(log):
    """Returns the records by offset, and the offsets that reads refuse."""
    found, refused, offset = {}, set(), 0
    while offset < log.log_end_offset:
        try:
            records = {one.offset: one.value for one in decode_records(log.read(offset, 1, up_to_offset=END_OF_ALL))}
        except DamagedRangeError as error:
            refused |= set(range(offset, error.end_offset))
            offset = error.end_offset
        except CorruptRecordError:
            refused.add(offset)
            offset += 1
        else:
            found |= records
            offset = max(records) + 1
    return found, refused


@pytest.mark.parametrize("scene", [without_file, with_damaged_index])
@pytest.mark.parametrize("seed", [None, *range(4)])
@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
def test_the_power_goes_at_any_operation(scene, seed, clean):
    fs, log, lost = scene()

    def scrub():
        for segment in log.segments:
            log.scrub(segment, lambda _: None)

    for cut_at in fs.each_change(scrub):
        left = fs.after_cut(None if seed is None else Random(seed * 1000 + cut_at))
        opened = open_log(left, clean=clean)
        found, refused = read_around(opened)
        assert opened.log_end_offset == END
        assert refused in (set(), lost)
        assert found == {offset: value for offset, value in WRITTEN.items() if offset not in refused}
        assert not [name for name in left.listdir(FOLDER) if name.endswith((".tmp", ".swap"))]
        opened.close()
    assert content_of(fs.after_cut(), CLOSED) == content_of(GOOD, CLOSED)
    assert content_of(fs.after_cut(), INDEX) == content_of(GOOD, INDEX)
