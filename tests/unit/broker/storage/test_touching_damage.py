from millrace_broker.storage.segments.damage import DamagedRange, with_added

BYTES = DamagedRange(0, 1, 0, 85, "the CRC does not match")
HOLE = DamagedRange(1, 3, 85, 85, "the segment ends too early")
ELSEWHERE = DamagedRange(9, 12, 300, 300, "a gap")


def test_a_hole_right_behind_damaged_bytes_is_one_range_with_them():
    whole = BYTES._replace(end_offset=3)
    assert with_added((HOLE,), BYTES) == with_added((BYTES,), HOLE) == (whole,)
    assert with_added((HOLE, ELSEWHERE), BYTES) == (whole, ELSEWHERE)


def test_two_holes_that_touch_are_one():
    behind = HOLE._replace(start_offset=3, end_offset=5)
    whole = HOLE._replace(end_offset=5)
    assert with_added((HOLE,), behind) == with_added((behind,), HOLE) == (whole,)


def test_what_does_not_touch_stays_apart():
    far = HOLE._replace(start_offset=2)
    assert with_added((BYTES,), far) == (BYTES, far)
    assert with_added((HOLE,), ELSEWHERE) == (HOLE, ELSEWHERE)
    behind = HOLE._replace(start_offset=4, end_offset=5)
    assert with_added((HOLE,), behind) == (HOLE, behind)
