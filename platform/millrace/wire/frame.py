"""Frames, `size i32, body[size]`, cut out of a stream as its bytes arrive.

A connection reads into the memory that `writable` returns and then calls `received`, which yields each whole body as a
read-only view. All connections of one loop share a scratch buffer, since each read is handled before the next. Only a
frame that is cut short needs memory of its own, at most twice as much as has arrived of it. The connection decides when
that memory grows: while `growth_bytes` is not 0, it calls `grow` before it reads on. The memory is kept for the next
such frame, up to the size of the scratch buffer, or until `trim`. Views are valid until the next `writable`.

A connection that has a scratch buffer for itself leaves a frame that is cut short there, if it fits and begins there.
`keep` gives a body that stays valid, and takes another scratch buffer instead of copying a large one; `give_back`
returns that memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from millrace.errors import FrameSizeError

SIZE = struct.Struct(">i")
SIZE_BYTES = 4
SCRATCH_BYTES = 2 << 20
MINIMUM_PARTIAL_BYTES = 64 << 10
COPIED_BYTES_MAX = 64 << 10


class FrameBuffer:
    """One connection's receive buffer, which yields whole frames; `max_frame_bytes` may be changed at any time."""

    def __init__(self, scratch: bytearray, max_frame_bytes: int, *, is_shared: bool = True) -> None:
        self._scratch = scratch
        self._scratch_view = memoryview(scratch)
        self.max_frame_bytes = max_frame_bytes
        self._in_place_bytes = 0 if is_shared else len(scratch)  # the largest frame that may be left there, cut short
        self._spare: bytearray | None = None
        self._size_prefix = b""  # the start of a size that is cut short
        self._left_bytes = 0  # of a frame that is cut short, at the start of the scratch buffer
        self._partial = bytearray()  # a frame, size included, that is cut short
        self._partial_filled = 0
        self._partial_size = 0  # of the whole frame; 0 if there is none

    @property
    def held_bytes(self) -> int:
        """How many bytes of memory this connection alone uses for a partly received frame."""
        return len(self._partial)

    @property
    def growth_bytes(self) -> int:
        """By how many bytes `grow` must enlarge a partly received frame's memory before more is read; 0 if by none."""
        if not self._partial_size or self._partial_filled < len(self._partial):
            return 0
        return min(2 * len(self._partial), self._partial_size) - len(self._partial)

    def grow(self) -> None:
        """Grows the memory of the partly received frame by `growth_bytes`."""
        self._give_partial(2 * len(self._partial))

    def trim(self) -> None:
        """Frees the memory kept for the next partly received frame, unless it holds one now."""
        if not self._partial_size:
            self._partial = bytearray()

    def writable(self, at_most_bytes: int = SCRATCH_BYTES) -> memoryview:
        """Returns the memory, never empty, to read from the socket into; `received` then yields the frames."""
        if self._partial_size:
            return memoryview(self._partial)[self._partial_filled : self._partial_size]
        kept = len(self._size_prefix)
        if kept:
            self._scratch[:kept] = self._size_prefix
        start = kept + self._left_bytes
        return self._scratch_view[start : start + at_most_bytes]

    def received(self, count: int) -> Iterator[memoryview]:
        """Yields the body of each frame that is whole, now that `count` bytes were written into `writable`.

        Raises FrameSizeError for a frame size above `max_frame_bytes` or below 0.
        """
        if self._partial_size:
            return self._received_partial(count)
        end = len(self._size_prefix) + self._left_bytes + count
        self._size_prefix, self._left_bytes = b"", 0
        return self._cut(self._scratch_view[:end].toreadonly(), end)

    def keep(self, body: memoryview) -> memoryview:
        """Returns a body that `received` has just yielded, in memory that nothing overwrites until `give_back`."""
        if body.obj is self._scratch and len(body) > COPIED_BYTES_MAX:
            self._scratch, self._spare = self._spare or bytearray(len(self._scratch)), None
            self._scratch_view = memoryview(self._scratch)
            return body
        # Memory above the scratch buffer's size is that frame's own.
        return body if len(body) > len(self._scratch) else memoryview(bytes(body))

    def give_back(self, body: memoryview) -> None:
        """Takes back the memory of (a part of) a body that `keep` returned, and that nobody uses any more."""
        if isinstance(body.obj, bytearray) and len(body.obj) == len(self._scratch):
            self._spare = body.obj

    def _cut(self, view: memoryview, end: int) -> Iterator[memoryview]:
        position = 0
        while end - position >= SIZE_BYTES:
            (size,) = SIZE.unpack_from(view, position)
            if not 0 <= size <= self.max_frame_bytes:
                raise FrameSizeError(size, self.max_frame_bytes)
            if end - position - SIZE_BYTES < size:
                if position == 0 and SIZE_BYTES + size <= self._in_place_bytes:
                    self._left_bytes = end
                else:
                    self._keep_partial(view[position:end], SIZE_BYTES + size)
                return
            body_start = position + SIZE_BYTES
            position = body_start + size
            yield view[body_start:position]
        self._size_prefix = bytes(view[position:end])

    def _received_partial(self, count: int) -> Iterator[memoryview]:
        self._partial_filled += count
        if self._partial_filled == self._partial_size:
            body = memoryview(self._partial)[SIZE_BYTES : self._partial_size].toreadonly()
            self._partial_size = 0
            if len(self._partial) > len(self._scratch):
                self._partial = bytearray()
            yield body

    def _keep_partial(self, start: memoryview, frame_size: int) -> None:
        self._partial_size = frame_size
        self._partial_filled = 0
        self._give_partial(max(2 * len(start), MINIMUM_PARTIAL_BYTES))
        self._partial[: len(start)] = start
        self._partial_filled = len(start)

    def _give_partial(self, size: int) -> None:
        size = min(size, self._partial_size)
        if len(self._partial) < size:
            grown = bytearray(size)
            grown[: self._partial_filled] = memoryview(self._partial)[: self._partial_filled]
            self._partial = grown


def framed(*parts: bytes | bytearray | memoryview) -> bytes:
    """Returns a frame: the size of the parts as four bytes, then the parts."""
    return b"".join((sum(map(len, parts)).to_bytes(SIZE_BYTES, "big"), *parts))
