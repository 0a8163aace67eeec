"""Keep JSON objects in an append-only file: a line each with its checksum, in groups that are whole or not there.

    {"rollout_id":"r1/0","reward":1.0,"sum":"0123456789abcdef+2"}

``sum`` ends every line: BLAKE2b over the bytes before it, then how many lines of the same group follow, which the checksum
covers too. One write appends a group, so what a killed writer leaves at the end is recognised as incomplete: it never
counts, and the next writer moves it to ``<name>.torn``. A line whose checksum is wrong, zeros among them, is damage: readers
refuse it by file and number; who appends to a file whose lines can be made anew moves it to ``<name>.torn`` and counts it.

Writers take turns by ``flock`` on the file itself, on one host: the lock of ``filelock`` costs 40 times as much, polls, and
needs a second file. Readers need no lock. A killed process loses no appended group; a loss of power none that was synced.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import threading
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b, sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

from tfgrpo.stores.errors import CorruptFile, RecordRejected, StoreError
from tfgrpo.stores.json_values import compact_json, key_digest
from tfgrpo.stores.text import pluralize

LineRow: TypeAlias = dict[str, Any]
_encode_ascii: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_SUM: Final = re.compile(rb',"sum":"([0-9a-f]{16})((?:\+[1-9][0-9]{0,8})?)"\}\r?\Z')
# Start of a line whose first field is the key: its first group is the text in JSON.
_HEAD: Final = rb'\{(?:"schema(?:_version)?":\d+,)?"%b":"([^"\\]*(?:\\.[^"\\]*)*)"[,}]'
# Those of the longest checksum.
_SUM_BYTES: Final = 40
_BLOCK: Final = 1 << 17
_TAIL: Final = 1 << 16
_SHOWN: Final = 5


class Line(NamedTuple):
    """One line of a file: its number, from 1, the byte where it begins, and its bytes, without the newline."""

    number: int
    offset: int
    data: bytes
    length: int
    """Bytes before the checksum; 0 for a damaged line, and for spaces in the place of one."""

    @property
    def body(self) -> bytes:
        """The object without its checksum."""
        return self.data[: self.length] + b"}"

    @property
    def damaged(self) -> bool:
        """Whether the checksum is wrong or missing. Spaces are what remains of a line that was moved away."""
        return not self.length and bool(self.data.strip())


class disk:  # noqa: N801 - used as a function; as one, with ``contextmanager``, it costs more than a system call
    """Turn every ``OSError`` of the block into a ``StoreError`` that names the file; ``what`` is the failed action."""

    def __init__(self, path: Path, what: str = "") -> None:
        self._path, self._what = path, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            raise StoreError(": ".join(filter(None, (str(self._path), self._what, reason)))) from error


def open_regular(path: str | os.PathLike[str], flags: int) -> int:
    """Return the descriptor of a file. Raise ``CorruptFile`` for a folder, pipe or device; reads of some never end."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise CorruptFile(f"{path}: is no regular file")
    return fd


def read_objects(path: Path) -> Iterator[LineRow]:
    """Yield the objects of a file; none without one. Raises ``CorruptFile`` with the number of a damaged line."""
    return map(json.loads, read_bodies(path))


def read_bodies(path: Path) -> Iterator[bytes]:
    """Yield the objects of a file as JSON text, without checksums; as ``read_objects``."""
    return (line.body for line in sound_lines(path))


def sound_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file, and raise ``CorruptFile`` with the number of a damaged one."""
    for line in lines_of(path):
        if line.damaged:
            raise CorruptFile(f"{path}: line {line.number} is damaged: its checksum is wrong or missing")
        if line.length:
            yield line


def lines_of(path: Path) -> Iterator[Line]:
    """Yield the lines of whole groups, damaged ones too; none without a file.

    Lines appended after the first was read are not seen. Needs only the right to read. Raises ``CorruptFile`` for a file
    of zeros: that is what a loss of power leaves, and no empty file.
    """
    if not path.exists():
        return
    with disk(path), open(path, "rb", buffering=0, opener=open_regular) as file:
        fd = file.fileno()
        end, empty = os.fstat(fd).st_size, True
        for group in _groups(lambda offset, length: os.pread(fd, min(length, end - offset), offset)):
            yield from group
            empty = False
        if empty and os.pread(fd, 1, 0) == b"\0":
            raise CorruptFile(f"{path}: is damaged: it begins with zeros, as after a loss of power")


class Extent(NamedTuple):
    """The first lines of a file, without line ends."""

    lines: int
    sha256: str


def extent_of(path: Path, lines: int | None = None) -> Extent:
    """Return the first ``lines`` lines of whole groups, damaged ones too, None for all; nothing without a file.

    Raises ``CorruptFile`` as ``lines_of``.
    """
    return _extent((line.data for line in lines_of(path)), lines)


def extents_at(path: Path, counts: Collection[int]) -> dict[int, str]:
    """Return the SHA-256 of the first lines, as ``extent_of``, for each of these numbers that the file has."""
    found, digest = {0: sha256().hexdigest()}, sha256()
    for number, line in enumerate(lines_of(path), start=1):
        digest.update(line.data.removesuffix(b"\r") + b"\n")
        if number in counts:
            found[number] = digest.hexdigest()
    return found


def whole_extent(path: Path) -> Extent:
    """Return all lines of any file, an incomplete one too. Raises ``StoreError`` without a file."""
    with disk(path, "cannot be read"), open(path, "rb", opener=open_regular) as file:
        return _extent((line.removesuffix(b"\n") for line in file), None)


def _extent(data: Iterable[bytes], lines: int | None) -> Extent:
    digest, number = sha256(), 0
    for line in islice(data, lines):
        digest.update(line.removesuffix(b"\r") + b"\n")  # line ends that a tool has converted are no damage
        number += 1
    return Extent(number, digest.hexdigest())


def _groups(read: Callable[[int, int], bytes], offset: int = 0, number: int = 0) -> Iterator[list[Line]]:
    """Yield whole groups of lines from a byte on, which is the start of line ``number + 1``."""
    group: list[Line] = []
    follow, rest, at = 0, b"", offset
    while block := read(at, _BLOCK):
        at += len(block)
        *lines, rest = (rest + block).split(b"\n")
        for data in lines:
            number += 1
            # After a damaged line, the group goes on as long as the line before it says.
            length, follow = _checked(data) or (0, max(0, follow - 1))
            group.append(Line(number, offset, data, length))
            offset += len(data) + 1
            if not follow:
                yield group
                group = []


def _checked(data: bytes) -> tuple[int, int] | None:
    """Return None for a damaged line."""
    known = _SUM.search(data, max(0, len(data) - _SUM_BYTES))
    if known is None:
        return None
    length, (digest, follow) = known.start(), known.groups()
    return (length, int(follow or 0)) if _digest(data[:length] + follow) == digest else None


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).hexdigest().encode()


def _summed(body: bytes, left: int) -> bytes:
    """Return the line of an object; ``left`` lines of its group follow."""
    head, follow = body[:-1], b"+%d" % left if left else b""
    return b'%b,"sum":"%b%b"}\n' % (head, _digest(head + follow), follow)


def whole_lines(bodies: Iterable[bytes]) -> bytes:
    """Return the content of a file with these objects, given as JSON text."""
    return b"".join(_summed(body, 0) for body in bodies)


def _short_digest(key: str | bytes) -> int:
    """Return a key in 64 bits: of a million keys two are alike in one of 37 million files."""
    return key_digest(key) >> 64


_Table: TypeAlias = "tuple[array[int], array[int]]"


def _slots(count: int) -> _Table:
    return array("Q", bytes(8 * count)), array("Q", bytes(8 * count))


def _slot_of(digest: int, table: _Table) -> int:
    """Return the slot with the digest, or the free one where it belongs."""
    digests, places = table
    last = len(places) - 1
    slot = digest & last
    while places[slot] and digests[slot] != digest:
        slot = (slot + 1) & last
    return slot


class _Offsets:
    """Where the newest line of each key begins: a hash table with linear probing, 24 to 48 bytes a key; a dictionary takes 110.

    A slot has the digest of a key, which is as good as random, and the offset plus two: 0 is free, and 1 was removed. Any
    thread may read while one writes: a table is replaced whole, and the place in a slot comes after its digest.
    """

    def __init__(self) -> None:
        self._table = _slots(1 << 10)
        self._taken = 0
        self.count = 0
        """Keys with a line."""

    def get(self, digest: int) -> int | None:
        table = self._table
        place = table[1][_slot_of(digest, table)]
        return place - 2 if place > 1 else None

    def put(self, digest: int, offset: int) -> None:
        digests, places = table = self._table
        slot = _slot_of(digest, table)
        self.count += places[slot] < 2
        self._taken += not places[slot]
        digests[slot] = digest
        places[slot] = offset + 2
        if 3 * self._taken > 2 * len(places):
            self._grow()

    def remove(self, digest: int) -> int | None:
        offset = self.get(digest)
        if offset is not None:
            self._table[1][_slot_of(digest, self._table)] = 1
            self.count -= 1
        return offset

    def _grow(self) -> None:
        digests, places = self._table
        larger = _slots(2 * len(places))
        for digest, place in zip(digests, places, strict=True):
            if place > 1:
                slot = _slot_of(digest, larger)
                larger[0][slot], larger[1][slot] = digest, place
        self._table, self._taken = larger, self.count


class LineFile:
    """One file of lines, for appending, and for reading by key. Safe for any number of threads and processes at once.

    ``key``: the field, or the function of an object, that names a line; opening reads the keys of all lines, and no line is
    kept in memory, only the offset of the newest one with each key. ``with file:`` keeps other writers out, may be nested,
    and does not close. Every ``OSError`` becomes a ``StoreError`` that names the file.
    """

    def __init__(self, path: Path, key: str | Callable[[Mapping[str, Any]], str] | None = None, *, reads: bool = False) -> None:
        """``reads``: only that, which needs no right to write."""
        self.path, self._reads = path, reads
        self._where = os.fspath(path)
        self.damaged: list[int] = []
        """Numbers of the damaged lines so far; of an incomplete last line too."""
        self._key = key
        self._head = re.compile(_HEAD % re.escape(key).encode()) if isinstance(key, str) else None
        self._turn, self._syncing = threading.RLock(), threading.Lock()
        self._depth = 0
        self._fd = -1
        self._size = 0
        self._forget()

    def _forget(self) -> None:
        self._offsets = _Offsets()
        self._spoiled: list[Line] = []
        self._end = self._synced = 0
        self._last = Line(0, 0, b"", 0)

    @property
    def count(self) -> int:
        """How many keys are known."""
        return self._offsets.count

    def __enter__(self) -> Self:
        self._turn.acquire()
        try:
            if not self._depth:
                self._lock()
            self._depth += 1
        except BaseException:  # also Ctrl-C while it waits
            self._turn.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._depth -= 1
            if not self._depth:
                with disk(self.path, "cannot be unlocked"):
                    fcntl.flock(self._fd, fcntl.LOCK_UN)
        finally:
            self._turn.release()

    def _lock(self) -> None:
        while True:
            if self._fd < 0 or self._pid != os.getpid():  # a forked child would share the lock of its parent
                self._open()
            with disk(self.path, "cannot be locked (some network file systems have no locks)"):
                fcntl.flock(self._fd, fcntl.LOCK_SH if self._reads else fcntl.LOCK_EX)
                if self._is_current():
                    return
            self.close()  # it was moved away

    def __del__(self) -> None:
        with suppress(Exception):  # also at the end of the interpreter
            self.close()

    def _open(self) -> None:
        """Create the file 0600, with its parents."""
        self.close()
        self._forget()
        with disk(self.path, "cannot be opened"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            how = os.O_RDONLY if self._reads else os.O_RDWR | os.O_APPEND | os.O_CREAT
            self._fd = open_regular(self.path, how)
            opened = os.fstat(self._fd)
        self._pid, self._identity = os.getpid(), (opened.st_dev, opened.st_ino)

    def _is_current(self) -> bool:
        try:
            now = os.stat(self._where)  # noqa: PTH116 - Path.stat takes twice the time, once a call of a model
        except FileNotFoundError:
            return False
        self._size = now.st_size
        return self._identity == (now.st_dev, now.st_ino)

    def close(self) -> None:
        """Close the descriptor; harmless when repeated. Another use opens it again."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1  # the descriptor is gone even when closing it fails
            with disk(self.path):
                os.close(fd)

    def size(self) -> int:
        """Return the bytes in the file now."""
        if not self._depth:  # under the lock no other process changes it
            with disk(self.path, "cannot be examined"):
                self._size = os.fstat(self._fd).st_size
        return self._size

    def _read(self, offset: int, length: int) -> bytes:
        with disk(self.path, "cannot be read"):
            return os.pread(self._fd, length, offset)

    def append(self, rows: Iterable[Mapping[str, Any]], *, fsync: bool = False) -> None:
        """Append the objects as one group, all or none; of lines with one key, the last will count.

        Raises ``RecordRejected`` for what is no JSON, ``StoreError`` when the disk refuses; the file is then as before.
        """
        self._append([(self._named(row), self._encoded(row)) for row in rows], fsync=fsync)

    def add(self, rows: Iterable[Mapping[str, Any]], *, fsync: bool = False) -> int:
        """Append the objects whose keys are new, as ``append`` does, and return how many. Of equal keys the first counts."""
        offered: dict[int, bytes] = {}
        for row in rows:
            offered.setdefault(self._named(row), self._encoded(row))
        if not offered:
            return 0
        with self:
            self.catch_up()
            fresh = [each for each in offered.items() if self._offsets.get(each[0]) is None]
            self._append(fresh, fsync=fsync)
        return len(fresh)

    def _append(self, bodies: Sequence[tuple[int, bytes]], *, fsync: bool) -> None:
        if not bodies:
            return
        count = len(bodies)
        lines = [_summed(body, count - number) for number, (_, body) in enumerate(bodies, start=1)]
        with self:
            if self._size != self._end or self._spoiled:
                self.repair()
            start = self.write(b"".join(lines), fsync=fsync)
            for (digest, _), line in zip(bodies, lines, strict=True):
                self._offsets.put(digest, start)
                start += len(line)
            self._end = start
            self._last = Line(self._last.number + count, start - len(line), line[:-1], len(bodies[-1][1]) - 1)

    def write(self, data: bytes, *, fsync: bool = False) -> int:
        """Write all of ``data`` at the end with one system call and return its offset. Under the lock."""
        start = self._size
        try:
            with disk(self.path, "cannot be written"):
                written = os.write(self._fd, data)
            if written != len(data):
                raise StoreError(f"{self.path}: the disk took {written} of {len(data)} bytes")
            if fsync:
                self._sync(self._fd, new=not start)
        except StoreError:
            self.truncate(start)
            raise
        self._size += written
        return start

    def sync(self) -> None:
        """Sync all that this process has appended, while others may append; for threads that ask at once, it is done once."""
        with self._syncing:
            with self._turn:
                start, end = self._synced, self._end
                if self._fd < 0 or start >= end:
                    return
                fd = os.dup(self._fd)
            try:
                self._sync(fd, new=not start)
            finally:
                os.close(fd)
            self._synced = end

    def _sync(self, fd: int, *, new: bool) -> None:
        with disk(self.path, "cannot be synced"):
            os.fsync(fd)
            if new:  # its directory too, or it may be gone after a loss of power
                folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes. Under the lock."""
        with disk(self.path):
            os.ftruncate(self._fd, size)
        self._size = size

    def get(self, key: str) -> LineRow | None:
        """Return the newest object with this key, of any process, or None. Raises ``CorruptFile`` for one that was changed."""
        body = self.body(key)
        row: LineRow | None = None if body is None else json.loads(body)
        return row

    def body(self, key: str) -> bytes | None:
        """Return the object as JSON text, as ``get``."""
        digest = _short_digest(key)
        if self._offsets.get(digest) is None:
            self.catch_up()
        offset = self._offsets.get(digest)
        if offset is None:
            return None
        data = self._line_at(offset)
        length, _ = _checked(data) or (0, 0)
        if not length or self._digest_in(data) != digest:
            raise CorruptFile(f"{self.path}: the line at byte {offset} changed while the file was open")
        return data[:length] + b"}"

    def newest(self) -> Line | None:
        """Return the last line, and read no other; the same object while nothing is appended. Under the lock.

        For files whose every line is a whole state. Raises ``CorruptFile`` for a damaged last line, and for zeros.
        """
        if self._size != self._end:
            data, rest = self._tail()
            length, _ = (_checked(data[:-1]) if data else None) or (0, 0)
            if b"\0" in rest or (data and not length):
                raise CorruptFile(f"{self.path}: is damaged: its last line has a wrong checksum, or is zeros")
            if not self._reads:
                self.cut(self._size - len(rest))
            self._end, self._last = self._size, Line(0, self._size - len(data), data[:-1], length)
        return self._last if self._last.length else None

    def keep_newest(self) -> None:
        """Replace the file by one with its last line alone. Under the lock; a disk that refuses leaves it as it is.

        For files without keys whose every line is a whole state. Writers that wait for the old file notice that it was moved
        away. The new file is synced before it takes the name: a rename that reaches the disk first leaves zeros.
        """
        line, fresh = self.newest(), self.path.with_name(f"{self.path.name}.new")
        if line is None:
            return
        fd, data = -1, _summed(line.body, 0)
        try:
            fd = os.open(fresh, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(fd)
            fresh.replace(self.path)
        except OSError:
            with suppress(OSError):
                fresh.unlink()
            if fd >= 0:
                os.close(fd)
            return
        old, self._fd, opened = self._fd, fd, os.fstat(fd)
        self._identity = (opened.st_dev, opened.st_ino)
        self._size = self._end = len(data)
        self._last = Line(1, 0, data[:-1], len(line.body) - 1)
        with disk(self.path):
            fcntl.flock(old, fcntl.LOCK_UN)  # a forked child has the old file open, too
            os.close(old)

    def cut_incomplete(self) -> None:
        """Move an incomplete last line to ``<name>.torn``. Under the lock."""
        _, rest = self._tail()
        self.cut(self._size - len(rest))

    def _tail(self) -> tuple[bytes, bytes]:
        size, length = self._size, _TAIL
        while True:
            start = max(0, size - length)
            block = self._read(start, size - start)
            end = block.rfind(b"\n") + 1
            begin = block.rfind(b"\n", 0, max(0, end - 1)) + 1
            if begin or not start:
                return block[begin:end], block[end:]
            length *= 2

    def remove(self, key: str) -> None:
        """Move the newest line of this key, whose content is of no use, to ``<name>.torn``, and count it as damaged."""
        with self:
            offset = self._offsets.remove(_short_digest(key))
            if offset is not None:  # else another thread was faster
                number = self._read(0, offset).count(b"\n") + 1
                self._spoil(Line(number, offset, self._line_at(offset), 0))
            self.repair()

    def catch_up(self) -> None:
        """Index what any process appended since the last time."""
        with self._turn:
            if self._fd < 0:
                self._open()
            size = self.size()
            if size == self._end:
                return
            known = self._last.data + b"\n" if self._last.data else b""
            if size < self._end or self._read(self._last.offset, len(known)) != known:  # changed by hand
                self._forget()
            for group in _groups(self._read, self._end, self._last.number):
                for line in group:
                    if line.length:
                        self._index(line)
                    elif line.damaged:
                        self._spoil(line)
                self._last, self._end = line, line.offset + len(line.data) + 1

    def repair(self) -> None:
        """Move damaged lines and an incomplete last group to ``<name>.torn``; spaces take their place. Under the lock."""
        self.catch_up()
        if self._spoiled:
            # Another descriptor: one opened with O_APPEND writes at the end of the file only.
            with disk(self.path), self.path.open("r+b") as file:
                for line in self._spoiled:
                    self._keep(line.data)
                    file.seek(line.offset)
                    file.write(b" " * len(line.data))
            self._spoiled.clear()
        if self.size() > self._end:
            self.damaged.append(self._last.number + 1)
            self.cut(self._end)

    @property
    def warning(self) -> str | None:
        """Warning that names the damaged lines that were moved away, or None."""
        if not self.damaged:
            return None
        numbers = ", ".join(map(str, self.damaged[:_SHOWN])) + (", …" if len(self.damaged) > _SHOWN else "")
        lines, name = pluralize(len(self.damaged), "damaged line"), self.path.name
        return f"{lines} of {name} ({numbers}) moved to {name}.torn"

    def _spoil(self, line: Line) -> None:
        self._spoiled.append(line)
        self.damaged.append(line.number)

    def cut(self, size: int) -> None:
        """Move what is after the first ``size`` bytes to ``<name>.torn``. Under the lock."""
        if (torn := self._size - size) > 0:
            self._keep(self._read(size, torn))
            self.truncate(size)

    def _keep(self, data: bytes) -> None:
        torn = self.path.with_name(self.path.name + ".torn")
        with disk(torn):
            fd = os.open(torn, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "ab") as keep:
                keep.write(data + b"\n")

    def _index(self, line: Line) -> None:
        if self._key is None:
            return
        try:
            self._offsets.put(self._digest_in(line.data), line.offset)
        except (LookupError, TypeError):  # an object of another file
            self._spoil(line)

    def _digest_in(self, data: bytes) -> int:
        """Return the digest of the key in a line. A key that comes first is read without parsing the rest."""
        head = None if self._head is None else self._head.match(data)
        if head is None:
            return self._named(json.loads(data))
        return _short_digest(json.loads(b'"%b"' % head[1]) if b"\\" in head[1] else head[1])

    def _named(self, row: Mapping[str, Any]) -> int:
        if self._key is None:
            return 0
        return _short_digest(str(self._key(row) if callable(self._key) else row[self._key]))

    def _encoded(self, row: Mapping[str, Any]) -> bytes:
        try:
            text = compact_json(row)
            try:
                return text.encode()
            except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold as an escape only
                return _encode_ascii(row).encode()
        except (TypeError, ValueError) as error:
            raise RecordRejected(f"{self.path}: {error}") from error

    def _line_at(self, offset: int) -> bytes:
        data, length = b"", 1 << 13
        while b"\n" not in data:
            block = self._read(offset + len(data), length)
            if not block:
                raise CorruptFile(f"{self.path}: the line at byte {offset} was cut off while the file was open")
            data += block
            length = len(data)
        return data.partition(b"\n")[0]
