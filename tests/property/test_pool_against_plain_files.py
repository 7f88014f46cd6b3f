"""A file system with a pool of descriptors is the one below it, whatever is opened, renamed and deleted."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millrace.descriptor_pool import PooledFileSystem
from millrace_support.crash_fs import CrashFileSystem

FOLDERS = ("/a", "/b")
NAMES = st.builds("{}/{}".format, st.sampled_from(FOLDERS), st.sampled_from("uvwxyz"))


class PoolAgainstPlainFiles(RuleBasedStateMachine):
    """`fds` are pairs: the pool's descriptor and the plain one of the same file."""

    @initialize(limit=st.integers(1, 4))
    def begin(self, limit: int) -> None:
        self.disk, self.plain, self.limit = CrashFileSystem(), CrashFileSystem(), limit
        self.pool = PooledFileSystem(self.disk, limit)
        self.fds: list[tuple[int, int]] = []
        self.nameless: set[tuple[int, int]] = set()
        self.names: dict[tuple[int, int], str] = {}
        for folder in FOLDERS:
            self.both("mkdir", folder)

    def both(self, operation: str, *arguments: object) -> object:
        outcomes = [attempt(fs, operation, *arguments) for fs in (self.pool, self.plain)]
        assert outcomes[0] == outcomes[1]
        return outcomes[0]

    def chosen(self, choice: float) -> tuple[int, int]:
        return self.fds[int(choice * len(self.fds))]

    @rule(path=NAMES)
    def open(self, path: str) -> None:
        pair = self.pool.open(path, create=True), self.plain.open(path, create=True)
        self.fds.append(pair)
        self.names[pair] = path

    @precondition(lambda self: self.fds)
    @rule(choice=st.floats(0, 1, exclude_max=True))
    def close(self, choice: float) -> None:
        pair = self.chosen(choice)
        self.fds.remove(pair)
        self.nameless.discard(pair)
        self.pool.close(pair[0])
        self.plain.close(pair[1])

    @precondition(lambda self: self.fds)
    @rule(choice=st.floats(0, 1, exclude_max=True), content=st.binary(min_size=1, max_size=9), sync=st.booleans())
    def write(self, choice: float, content: bytes, sync: bool) -> None:
        for fs, fd in zip((self.pool, self.plain), self.chosen(choice), strict=True):
            fs.pwritev(fd, [content], fs.size(fd))
            if sync:
                fs.fsync(fd)

    @precondition(lambda self: self.fds)
    @rule(choice=st.floats(0, 1, exclude_max=True), size=st.integers(0, 20))
    def truncate(self, choice: float, size: int) -> None:
        for fs, fd in zip((self.pool, self.plain), self.chosen(choice), strict=True):
            fs.truncate(fd, size)

    @rule(source=NAMES, new=NAMES)
    def rename(self, source: str, new: str) -> None:
        if source != new and self.both("rename", source, new) is None:
            self.lose_name(new)
            self.names = {pair: new if name == source else name for pair, name in self.names.items()}

    @rule(path=NAMES)
    def unlink(self, path: str) -> None:
        if self.both("unlink", path) is None:
            self.lose_name(path)

    def lose_name(self, path: str) -> None:
        lost = {pair for pair in self.fds if self.names.get(pair) == path}
        self.nameless |= lost
        for pair in lost:
            del self.names[pair]

    @rule()
    def swap_folders(self) -> None:
        for source, target in (("/a", "/c"), ("/b", "/a"), ("/c", "/b")):
            self.both("rename", source, target)
        swapped = {"/a": "/b", "/b": "/a"}
        self.names = {pair: swapped[name[:2]] + name[2:] for pair, name in self.names.items()}

    @precondition(lambda self: self.fds)
    @rule(choice=st.floats(0, 1, exclude_max=True))
    def read(self, choice: float) -> None:
        pooled, plain = self.chosen(choice)
        assert self.pool.pread(pooled, 1000, 0) == self.plain.pread(plain, 1000, 0)

    @invariant()
    def no_more_are_open_than_allowed(self) -> None:
        assert self.disk.open_files == self.pool.open_count <= max(self.limit, len(self.nameless) + 1)

    def teardown(self) -> None:
        for pooled, plain in getattr(self, "fds", ()):
            assert self.pool.pread(pooled, 1000, 0) == self.plain.pread(plain, 1000, 0)
            self.pool.close(pooled)
        if hasattr(self, "pool"):
            assert self.disk.open_files == 0


def attempt(fs: PooledFileSystem | CrashFileSystem, operation: str, *arguments: object) -> object:
    try:
        return getattr(fs, operation)(*arguments)
    except OSError as error:
        return error.errno


TestPoolAgainstPlainFiles = PoolAgainstPlainFiles.TestCase
TestPoolAgainstPlainFiles.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
