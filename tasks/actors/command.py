"""Attempt items with a command, such as a coding agent, started once per attempt in a private working folder.

The item is in its arguments and, as JSON, on its standard input; its answer is its output, a file, or what it has
changed, as a diff that ``git apply`` takes.
"""

from __future__ import annotations

import asyncio
import difflib
import filecmp
import json
import os
import re
import shlex
import shutil
import signal
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from tfgrpo.pipelines.settings.addresses import SECRET_NAME, looks_like_a_key
from tfgrpo.pipelines.settings.tree import ActorSettings
from tfgrpo.stores.errors import ActorError, Problem
from tfgrpo.stores.json_values import sha256_hex
from tfgrpo.stores.runs import attempt_name
from tfgrpo.tasks.actors.own import OwnAgent, answer_place, answer_problems, item_json, objects_in, request_of
from tfgrpo.tasks.gateway.session import RolloutSession, agent_environment
from tfgrpo.tasks.models.endpoint import ApiKey, scrubbed, scrubber
from tfgrpo.tasks.processes.process import OUTPUT_BYTES, Ended, Guard, Limits
from tfgrpo.tasks.runtime.runtime import AttemptContext
from tfgrpo.tasks.shapes import Frame, Trajectory

_OF_THE_GATEWAY: Final = ("base_url", "root_url", "api_key")
_TEMPLATE: Final = re.compile(r"\{(prompt|system|item|here|base_url|root_url|api_key)\}")
_OURS: Final = ("TFGRPO_", "FEATURE_TFGRPO_")
_CALLED: Final = ("KEY", "KEY_ID", "PASSWORD", "PASSWD", "_PWD", "WEBHOOK", "WEBHOOK_URL", "DSN")
# In an address, also a token in place of the name.
_WITH_PASSWORD: Final = re.compile(r"://(?:[^/\s:@]*:[^\s@]+|[^/\s:@]{16,})@")
_IGNORED: Final = frozenset({".git", "__pycache__"})
_LINK: Final = "120000"
_NOTHING: Final = "/dev/null"
_NO_NEWLINE: Final = "\\ No newline at end of file"
# Pairs of lines up to which the shortest difference is searched for.
_QUICK: Final = 25_000_000


class CommandActor(OwnAgent):
    """Starts the command of the settings, of which ``problems`` has found none."""

    def __init__(self, settings: ActorSettings) -> None:
        self.proxied = settings.gateway.enabled
        self._settings = settings
        self._words = shlex.split(settings.command or "")
        shown = {"prompt", "item"}.intersection(_TEMPLATE.findall(" ".join(self._words)))
        self._input = settings.stdin or ("nothing" if shown else "item")
        self._answer = answer_place(settings.answer, "command")
        self._template = None if settings.workdir is None else Path(settings.workdir).resolve()
        self._here = Path.cwd()
        self._guard: Guard | None = None
        named = {name: os.environ.get(name, "") for name in settings.env}
        words = (word for name, value in named.items() if _is_secret(name, value) for word in value.split())
        self._scrub = scrubber(*(ApiKey(word) for word in words if word.isascii() and word.isprintable()))

    async def run(self, attempt: AttemptContext, session: RolloutSession | None) -> Trajectory:
        """Start the command in a new folder, and remove the folder when all of its processes have ended."""
        request, item = request_of(attempt), item_json(attempt.item)
        values = {"prompt": attempt.user_text, "system": attempt.system, "here": str(self._here)}
        values["item"] = json.dumps(item, ensure_ascii=False)
        if session is not None:
            values |= {name: getattr(session, name) for name in _OF_THE_GATEWAY}
        base = self._passed_on if session is None else agent_environment(session, self._passed_on)
        own = (each.partition("=") for each in self._settings.env if "=" in each)
        env = {**base, **{name: _filled(text, values) for name, _, text in own}}
        whole = json.dumps({**request, **item})  # the prompt is that of the item alone
        stdin = {"prompt": attempt.user_text, "item": whole, "nothing": ""}[self._input]
        if (guard := self._guard) is None:  # one for this process; it ends what is left when the runtime is closed
            guard = self._guard = Guard()
            attempt.runtime.resources.push_async_callback(asyncio.to_thread, guard.close)
        # The same when a run is resumed: agents tell the model where they work, and another would be another call.
        key = attempt.key("agent", turn=0)
        identity = sha256_hex(f"{attempt.runtime.context.run_dir.resolve()}\n{attempt_name(key.group, key.rollout)}")
        async with guard.folder(identity[:16]) as folder:
            ended = await guard.run(
                [_filled(word, values) for word in self._words],
                stdin=stdin.encode("utf-8", "replace"),
                folder=folder,
                template=self._template,
                env={**env, "PWD": str(folder)},  # else that of this process
                limits=Limits(memory_mb=self._settings.memory_mb),
            )
            if ended.limit:
                raise ActorError(f"the command wrote more than {OUTPUT_BYTES >> 20} MB")
            if ended.code:
                raise ActorError(self._scrub(self._failure(ended)))
            return await attempt.runtime.in_thread(lambda: scrubbed(self._trajectory(ended, folder), self._scrub))

    def _trajectory(self, ended: Ended, folder: Path) -> Trajectory:
        text = ended.output.decode("utf-8", "replace")
        # The last object is the answer, or ends what leads to it.
        notes = [(str(value.get("type", "event")), line) for line, value in objects_in(text)[:-1]]
        diff = ""
        if self._template is not None or self._answer.kind == "diff":
            diff = changes(self._template, folder, OUTPUT_BYTES)
            notes.append(("diff", diff))
        frames = tuple(Frame("note", name, note, None, None, 0.0) for name, note in notes)
        if self._answer.kind == "diff":
            return Trajectory(diff, frames)
        return Trajectory(self._file(folder) if self._answer.kind == "file" else self._answer.of_output(text), frames)

    def _file(self, folder: Path) -> str:
        name, path = self._answer.name, folder / self._answer.name
        # An agent could link to a file elsewhere, which would become its answer.
        if not path.resolve().is_relative_to(folder) or not path.is_file():
            raise ActorError(f"the command left no file {name!r} in its working folder (actor.answer)")
        if path.stat().st_size > OUTPUT_BYTES:
            raise ActorError(f"the file {name!r} has more than {OUTPUT_BYTES >> 20} MB")
        return path.read_text(encoding="utf-8", errors="replace").strip()

    def _failure(self, ended: Ended) -> str:
        how = f"ended with exit code {ended.code}"
        if ended.code < 0:
            how = f"was ended by {signal.Signals(-ended.code).name}; see actor.memory_mb and actor.timeout_s"
        # Many write why they failed in the place of their answer, or to the end of their output.
        text = ended.output.decode("utf-8", "replace")
        last_words = text[-500:].strip()
        with suppress(ActorError):
            last_words = self._answer.of_output(text) if self._answer.kind == "json" else last_words
        return f"the command {how}: {ended.errors or last_words or 'it wrote nothing to standard error'}"

    @cached_property
    def _passed_on(self) -> dict[str, str]:
        """Variables without secrets, unless one is passed through by name."""
        return {name: value for name, value in os.environ.items() if name in self._settings.env or not _is_secret(name, value)}

    @staticmethod
    def problems(settings: ActorSettings, *, learns: bool) -> Iterator[Problem]:
        """Yield what is wrong with the settings."""
        words = shlex.split(settings.command or "")
        if not words:
            yield Problem("actor.command", "none", "the program of kind: command, with its arguments")
            return
        program, filled = words[0], set(_TEMPLATE.findall(" ".join((*words, *settings.env))))
        there = program.replace("{here}", str(Path.cwd()))
        path = Path(settings.workdir or os.devnull, there) if "/" in there else Path(there)
        if shutil.which(path) is None:
            fault = "not executable" if "/" in there and path.is_file() else "not found"
            here = f"; perhaps {{here}}/{program.removeprefix('./')}" if Path(program).is_file() else ""
            accepted = "a program on the PATH, by an absolute path, by {here}/…, or in actor.workdir"
            yield Problem("actor.command", f"{program!r}, which is {fault}", accepted + here)
        yield from answer_problems(settings, "command")
        if settings.workdir is not None and not Path(settings.workdir).is_dir():
            yield Problem("actor.workdir", repr(settings.workdir), "a folder")
        if not settings.gateway.enabled and filled.intersection(_OF_THE_GATEWAY):
            setting = "an address or key of the gateway, with actor.gateway.enabled off"
            yield Problem("actor.command", setting, "actor.gateway.enabled on")
        if not settings.gateway.enabled and learns and "system" not in filled:
            accepted = "{system} in an argument, so that lessons can reach the agent, or actor.gateway.enabled on"
            yield Problem("actor.command", "no {system}, with actor.gateway.enabled off", accepted)

    def warnings(self, settings: ActorSettings) -> Iterator[str]:
        """Yield what is probably not meant, too."""
        yield from super().warnings(settings)
        for word in shlex.split(settings.command or "")[1:]:
            path = Path(word)
            if not path.is_absolute() and path.is_file() and not Path(settings.workdir or os.devnull, word).exists():
                yield f"{word} is not in the folder in which the command works; {{here}}/{word} is the one of this folder"
        for name in (each for each in settings.env if "=" not in each and each not in os.environ):
            yield f"{name} of actor.env is not set in this environment"


def _is_secret(name: str, value: str) -> bool:
    called = name.startswith(_OURS) or name.upper().endswith(_CALLED) or SECRET_NAME.search(name) is not None
    return called or _WITH_PASSWORD.search(value) is not None or looks_like_a_key(value)


def _filled(text: str, values: Mapping[str, str]) -> str:
    """Replace in one pass: a prompt may have such words."""
    return _TEMPLATE.sub(lambda match: values.get(match[1], match[0]), text)


class _Entry(NamedTuple):
    mode: str
    """As git writes it."""
    content: bytes
    """For a link, its target."""


def changes(before: Path | None, after: Path, most: int) -> str:
    """Return a git diff of two folders, the first perhaps none. Raise ``ActorError`` for one of more than ``most`` bytes."""
    old, new = _files(before), _files(after)
    parts: list[str] = []
    left = most
    for name in sorted(old.keys() | new.keys()):
        paths = (old.get(name), new.get(name))
        # Compared before they are read: a large file that has not changed costs no memory.
        if _same(*paths):
            continue
        was, now = (None if path is None else _entry(path, left) for path in paths)
        replaced = was is not None and now is not None and (was.mode == _LINK) != (now.mode == _LINK)
        pairs = ((was, None), (None, now)) if replaced else ((was, now),)
        parts.append("".join(_difference(name, *pair) for pair in pairs))
        left -= len(parts[-1].encode("utf-8", "surrogatepass"))
        if left < 0:
            raise ActorError(f"what changed in the working folder has more than {most >> 20} MB")
    return "".join(parts)


def _files(folder: Path | None) -> dict[str, Path]:
    """Files and links by relative path; nothing else, which might never end when it is read."""
    paths = {}
    for path, folders, files in os.walk(folder or ""):  # of "", nothing
        folders[:] = [each for each in folders if each not in _IGNORED]
        for each in (Path(path, name) for name in (*files, *folders)):
            if each.is_symlink() or each.is_file():
                paths[each.relative_to(folder or "").as_posix()] = each
    return paths


def _same(one: Path | None, other: Path | None) -> bool:
    if one is None or other is None or _mode(one) != _mode(other):
        return False
    return one.readlink() == other.readlink() if one.is_symlink() else filecmp.cmp(one, other, shallow=False)


def _mode(path: Path) -> str:
    return _LINK if path.is_symlink() else "100755" if path.stat().st_mode & stat.S_IXUSR else "100644"


def _entry(path: Path, most: int) -> _Entry:
    if path.is_symlink():
        return _Entry(_LINK, os.fsencode(path.readlink()))
    if path.stat().st_size > most:
        raise ActorError(f"{path.name}, changed in the working folder, has more than {most >> 20} MB")
    return _Entry(_mode(path), path.read_bytes())


def _difference(name: str, old: _Entry | None, new: _Entry | None) -> str:
    a, b = _quoted(f"a/{name}"), _quoted(f"b/{name}")
    lines = [f"diff --git {a} {b}"]
    if old is not None and new is not None:
        lines += [f"old mode {old.mode}", f"new mode {new.mode}"] if old.mode != new.mode else []
    else:
        lines += [f"new file mode {new.mode}"] if new is not None else []
        lines += [f"deleted file mode {old.mode}"] if old is not None else []
    before, after = _text_lines(old), _text_lines(new)
    if before is None or after is None:
        lines.append(f"Binary files {a if old else _NOTHING} and {b if new else _NOTHING} differ")
    elif before != after:
        # A name with a space ends in a tab, or what follows it would belong to it.
        a, b = (f"{quoted}\t" if " " in quoted else quoted for quoted in (a, b))
        lines += [f"--- {a if old else _NOTHING}", f"+++ {b if new else _NOTHING}"]
        if len(before) * len(after) <= _QUICK:
            hunks = list(difflib.unified_diff(before, after, lineterm="\n"))[2:]  # its lines of names are not git's
        else:
            whole = (f"@@ -1,{len(before)} +1,{len(after)} @@\n",)
            hunks = [*whole, *(f"-{line}" for line in before), *(f"+{line}" for line in after)]
        lines += (line.removesuffix("\n") if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in hunks)
    return "\n".join(lines) + "\n"


def _text_lines(entry: _Entry | None) -> list[str] | None:
    if entry is None:
        return []
    try:
        text = entry.content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else [line for line in re.split(r"(?<=\n)", text) if line]


def _quoted(name: str) -> str:
    """A path as git writes it: in quotes where a character of it would end it."""
    escaped = "".join(f"\\{ord(each):03o}" if each in '"\\' or each < " " else each for each in name)
    return name if escaped == name else f'"{escaped}"'
