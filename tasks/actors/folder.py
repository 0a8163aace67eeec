"""Tell what has changed in a working folder, as a diff that ``git apply`` takes."""

from __future__ import annotations

import difflib
import filecmp
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tfgrpo.stores.errors import ActorError

_IGNORED: Final = frozenset({".git", "__pycache__"})
_LINK: Final = "120000"
_NOTHING: Final = "/dev/null"
_QUICK: Final = 25_000_000
"""Pairs of lines up to which the shortest difference is searched for."""


class _Entry(NamedTuple):
    mode: str
    """As git writes it."""
    content: bytes
    """For a link, its target."""


def changes(before: Path | None, after: Path, most: int) -> str:
    """Return the changes from one folder to another, without those of ``.git``; of files that are no text the names only.

    ``before`` None is an empty folder. Raise ``ActorError`` for a diff of more than ``most`` bytes.
    """
    old, new = _files(before), _files(after)
    parts: list[str] = []
    left = most
    for name in sorted(old.keys() | new.keys()):
        if name in old and name in new and _same(old[name], new[name]):
            continue
        was, now = _entry(old.get(name), left), _entry(new.get(name), left)
        replaced = was is not None and now is not None and (was.mode == _LINK) != (now.mode == _LINK)
        pairs = ((was, None), (None, now)) if replaced else ((was, now),)
        parts.append("".join(_difference(name, *pair) for pair in pairs))
        left -= len(parts[-1].encode("utf-8", "surrogatepass"))
        if left < 0:
            raise ActorError(f"what changed in the working folder has more than {most >> 20} MB")
    return "".join(parts)


def _files(folder: Path | None) -> dict[str, Path]:
    """Files and links by relative path; nothing else, which might never end when it is read."""
    found = {}
    for path, folders, files in os.walk(folder or ""):  # of "", nothing
        folders[:] = [each for each in folders if each not in _IGNORED]
        for each in (Path(path, name) for name in (*files, *folders)):
            mode = each.lstat().st_mode
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                found[each.relative_to(folder or "").as_posix()] = each
    return found


def _same(old: Path, new: Path) -> bool:
    if _mode(old) != _mode(new):
        return False
    return old.readlink() == new.readlink() if old.is_symlink() else filecmp.cmp(old, new, shallow=False)


def _mode(path: Path) -> str:
    return _LINK if path.is_symlink() else "100755" if path.stat().st_mode & stat.S_IXUSR else "100644"


def _entry(path: Path | None, most: int) -> _Entry | None:
    """Return a file as git sees it; None for no file."""
    if path is None:
        return None
    mode = _mode(path)
    if mode == _LINK:
        return _Entry(mode, os.fsencode(path.readlink()))
    if path.stat().st_size > most:
        raise ActorError(f"{path.name}, changed in the working folder, has more than {most >> 20} MB")
    return _Entry(mode, path.read_bytes())


def _difference(name: str, old: _Entry | None, new: _Entry | None) -> str:
    a, b = _quoted(f"a/{name}"), _quoted(f"b/{name}")
    lines = [f"diff --git {a} {b}"]
    if old is None or new is None:
        kind, mode = ("new", new.mode) if new is not None else ("deleted", old.mode if old is not None else "")
        lines.append(f"{kind} file mode {mode}")
    elif old.mode != new.mode:
        lines += [f"old mode {old.mode}", f"new mode {new.mode}"]
    before, after = _text_lines(old), _text_lines(new)
    if before is None or after is None:
        lines.append(f"Binary files {a if old else _NOTHING} and {b if new else _NOTHING} differ")
    elif before != after:
        lines += [f"--- {_ended(a) if old else _NOTHING}", f"+++ {_ended(b) if new else _NOTHING}"]
        return "\n".join(lines) + "\n" + "".join(map(_whole, _hunks(before, after)))
    return "\n".join(lines) + "\n"


def _hunks(before: list[str], after: list[str]) -> Iterator[str]:
    """The hunks of a unified diff; one for everything where the search for a shorter one would take long."""
    if len(before) * len(after) <= _QUICK:
        hunks = difflib.unified_diff(before, after, lineterm="\n")
        yield from list(hunks)[2:]  # without its lines of names, which are not git's
        return
    yield f"@@ -1,{len(before)} +1,{len(after)} @@\n"
    yield from (f"-{line}" for line in before)
    yield from (f"+{line}" for line in after)


def _whole(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _text_lines(entry: _Entry | None) -> list[str] | None:
    """The lines of a text with their ends; None for what is no text."""
    if entry is None:
        return []
    try:
        text = entry.content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else [line for line in re.split(r"(?<=\n)", text) if line]


def _quoted(name: str) -> str:
    """A path as git writes it: in quotes where a character of it would end it."""
    if not any(character in '"\\' or character < " " for character in name):
        return name
    return '"' + "".join(f"\\{ord(each):03o}" if each in '"\\' or each < " " else each for each in name) + '"'


def _ended(name: str) -> str:
    return f"{name}\t" if " " in name else name
