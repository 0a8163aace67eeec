"""The line store: a group of lines is whole or not there, damage is named, and every key is read as it was written."""

import errno
import fcntl
import itertools
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.records import writers
from tests.support.records.writers import all_at_once, bytes_read, in_process
from tfgrpo.stores.errors import CorruptFile, RecordRejected, StoreError
from tfgrpo.stores.files import lines
from tfgrpo.stores.files.lines import LineFile, lines_of, read_objects

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "rows.jsonl"


def rows(*names: str) -> list[dict[str, str]]:
    return [{"key": name, "text": f"text of {name}"} for name in names]


def keys(path: Path) -> list[str]:
    return [row["key"] for row in read_objects(path)]


def written(path: Path, *names: str) -> list[bytes]:
    """Append single lines and return them."""
    for name in names:
        LineFile(path).append(rows(name))
    return path.read_bytes().splitlines(keepends=True)


def torn(path: Path) -> bytes:
    aside = path.with_name(f"{path.name}.torn")
    return aside.read_bytes() if aside.exists() else b""


# --- writing and reading


def test_a_group_is_written_byte_for_byte_like_this_and_half_a_surrogate_pair_comes_back(path):
    # printf '%s' '{"key":"a","n":1.5+1' | b2sum -l 64
    LineFile(path).append([{"key": "a", "n": 1.5}, {"n": None, "key": "ä"}])
    assert path.read_text(encoding="utf-8").splitlines() == [
        '{"key":"a","n":1.5,"sum":"0190c02cc2b0f8a7+1"}',
        '{"n":null,"key":"ä","sum":"e83960bf7d07c604"}',
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    LineFile(path).append(rows("\ud800"))
    assert keys(path) == ["a", "ä", "\ud800"]


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.text(), value=ANY_JSON)
def test_any_key_and_any_json_come_back(tmp_path, key, value):
    path = tmp_path / "rows.jsonl"
    LineFile(path, "key").append([{"key": key, "value": value}, {"value": value, "key": f"{key} again"}])
    again = LineFile(path, "key")
    assert again.get(key) == {"key": key, "value": value}
    assert again.get(f"{key} again") == {"value": value, "key": f"{key} again"}
    assert list(read_objects(path))[-1] == again.get(f"{key} again")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1}], ids=str)
def test_a_row_that_is_no_json_keeps_its_group_out(path, value):
    (before,) = written(path, "a")
    for append in (LineFile(path, "key").append, LineFile(path, "key").add):
        with pytest.raises(RecordRejected, match=r"rows\.jsonl"):
            append([{"key": "b"}, {"key": "c", "value": value}])
    assert path.read_bytes() == before


def test_of_equal_keys_add_keeps_the_first_and_get_returns_the_newest(path):
    one, other = LineFile(path, "key"), LineFile(path, lambda row: row["key"])
    assert one.add([{"key": "a", "n": 1}, {"key": "b", "n": 1}, {"key": "a", "n": 2}]) == 2
    assert other.add([{"key": "b", "n": 3}, {"key": "c", "n": 3}]) == 1
    assert (one.get("a"), one.get("c")) == ({"key": "a", "n": 1}, {"key": "c", "n": 3})
    other.append([{"key": "a", "n": 4}, {"key": "a", "n": 5}])
    assert other.get("a") == LineFile(path, "key").get("a") == {"key": "a", "n": 5}
    assert one.get("d") is None
    assert (one.count, len(list(read_objects(path)))) == (3, 5)


def test_the_newest_line_is_read_alone_and_no_older_one_in_place_of_a_damaged_one(path):
    written(path, *"ab")
    with LineFile(path) as file:
        first = file.newest()
        assert json.loads(first.body) == rows("b")[0]
        assert file.newest() is first
        file.append(rows("long" * 50_000))
        assert json.loads(file.newest().body)["key"] == "long" * 50_000
    with LineFile(path) as file:
        assert json.loads(file.newest().body)["key"] == "long" * 50_000
    assert LineFile(path, "key").get("long" * 50_000) == rows("long" * 50_000)[0]
    with LineFile(path.with_name("none")) as empty:
        assert empty.newest() is None
    first, second = written(path.with_name("damaged"), *"ab")
    for damaged in (second.replace(b"text", b"TEXT"), b"\0" * len(second), b"\0" * 9 + second[9:]):
        path.write_bytes(first + damaged)
        with LineFile(path) as file, pytest.raises(CorruptFile, match="last line"):
            file.newest()


def test_readers_need_no_lock_no_right_to_write_and_see_what_was_there_when_they_began(path):
    written(path, "a", "b")
    path.chmod(0o400)
    reading = read_objects(path)
    assert next(reading)["key"] == "a"
    path.chmod(0o600)
    with LineFile(path) as file:
        file.append(rows("c"))
        assert [row["key"] for row in reading] == ["b"]
        assert keys(path) == ["a", "b", "c"]


# --- what is damaged is named


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "edited": lambda line: line.replace(b"text of", b"TEXT of"),
    "checksum edited": lambda line: line[:-4] + b'x"}\n',
    "cut off": lambda line: line[:20] + b"\n",
    "cut off, ending in a brace": lambda line: line[:20] + b'"}\n',
    "in two": lambda line: line[:20] + b"\n" + line[20:],
    "zeros": lambda line: b"\0" * (len(line) - 1) + b"\n",
    "no UTF-8": lambda line: line.replace(b"text", b"te\xfft"),
    "deep nesting": lambda line: b"[" * 100_000 + b"\n",
    "without checksum": lambda line: line[: line.index(b',"sum"')] + b"}\n",
    "of a group that goes on": lambda line: line[:-3] + b'+1"}\n',
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_line_is_named_to_readers_and_set_aside_by_writers(path, damage):
    first, second, third = written(path, *"abc")
    path.write_bytes(first + damage(second) + third)
    with pytest.raises(CorruptFile, match=r"rows\.jsonl: line 2 is damaged"):
        list(read_objects(path))
    assert [line.length > 0 for line in lines_of(path)][:: 2 + damage(second).count(b"\n") - 1] == [True, True]
    file = LineFile(path, "key")
    assert (file.add(rows("a", "b", "c", "d")), file.damaged[0]) == (2, 2)
    assert "of rows.jsonl (2" in file.warning
    assert file.warning.endswith("moved to rows.jsonl.torn")
    assert keys(path) == ["a", "c", "b", "d"]
    assert torn(path) == damage(second)
    assert LineFile(path, "key").add(rows("e")) == 1
    assert torn(path) == damage(second), "once"


def test_a_line_whose_content_is_of_no_use_is_set_aside_by_its_key(path):
    _, second, _ = written(path, *"abc")
    file = LineFile(path, "key")
    assert file.get("b") is not None
    file.remove("b")
    assert (file.get("b"), file.damaged, torn(path)) == (None, [2], second)
    assert keys(path) == ["a", "c"]


def test_a_damaged_line_of_a_group_costs_that_line(path):
    LineFile(path).append(rows(*"abc"))
    LineFile(path).append(rows("d"))
    before = path.read_bytes().splitlines(keepends=True)
    for place, left in enumerate(["bc", "ac", "ab"]):
        path.write_bytes(b"".join(b"damaged\n" if at == place else line for at, line in enumerate(before)))
        LineFile(path, "key").add(rows("e"))
        assert keys(path) == [*left, "d", "e"]


@pytest.mark.parametrize("zeros", [1, 4096, 200_000])
def test_zeros_are_damage_and_no_empty_file(path, zeros):
    path.parent.mkdir()
    path.write_bytes(b"\0" * zeros)
    with pytest.raises(CorruptFile, match="zeros"):
        list(read_objects(path))
    with LineFile(path) as file, pytest.raises(CorruptFile, match="zeros"):
        file.newest()
    file = LineFile(path, "key")
    assert (file.add(rows("a")), file.damaged, keys(path)) == (1, [1], ["a"])


def test_line_ends_that_a_tool_converted_are_no_damage_and_lines_of_another_file_are(path):
    LineFile(path).append(rows(*"abc"))
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    file = LineFile(path, "key")
    assert file.add(rows(*"abcd")) == 1
    assert (keys(path), file.damaged, file.get("b")) == (list("abcd"), [], rows("b")[0])
    file.append([{"key": 7}])
    LineFile(path).append([{"another": 1}])
    again = LineFile(path, "key")
    assert (again.add(rows("a", "e")), again.damaged) == (1, [6])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw.replace(b'"key":"b"', b'"key":"c"'), "changed"),
        (lambda raw: raw.replace(b"text", b"TEXT"), "changed"),
        (lambda raw: b"x" * (len(raw) - 1) + b"\n", "changed"),
        (lambda raw: raw[:-9], "cut off"),
        (lambda raw: b"", "cut off"),
    ],
)
def test_a_line_changed_under_an_open_file_is_an_error_not_an_answer(path, change, message):
    file = LineFile(path, "key")
    file.append(rows(*"ab"))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CorruptFile, match=message):
        file.get("b")


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "moved away": (lambda path: path.rename(path.with_name("old")), "abd"),
    "replaced": (lambda path: (written(path.with_name("x"), "x"), path.with_name("x").replace(path)), "xabd"),
    "emptied": (lambda path: path.write_bytes(b""), "abd"),
    "shortened": (lambda path: os.truncate(path, path.read_bytes().index(b"\n") + 1), "abd"),
    "replaced by a longer one": (lambda path: path.write_bytes(b"".join(written(path.with_name("x"), *"xyz"))), "xyzabd"),
}


@pytest.mark.parametrize(("change", "after"), CHANGES.values(), ids=CHANGES)
def test_a_file_that_was_changed_by_hand_is_read_anew(path, change, after):
    file = LineFile(path, "key")
    file.append(rows("a"))
    file.append(rows("b"))
    change(path)
    file.add(rows(*"abd"))
    assert keys(path) == list(after)


# --- a killed writer


@pytest.fixture
def begun(path):
    """A file with a whole line, and with a group of three behind it: where that starts, and all bytes."""
    written(path, "a")
    start = path.stat().st_size
    LineFile(path).append(rows(*"bcd"))
    return start, path.read_bytes()


def test_an_incomplete_group_never_counts_wherever_it_was_cut(path, begun):
    start, whole = begun
    for end in range(start, len(whole)):
        path.write_bytes(whole[:end])
        assert keys(path) == ["a"]
        LineFile(path).append(rows("e"))
        assert keys(path) == ["a", "e"]
    assert whole[start:-1] in torn(path)
    assert stat.S_IMODE(path.with_name("rows.jsonl.torn").stat().st_mode) == 0o600


def test_a_group_whose_end_is_zeros_never_counts(path, begun):
    start, whole = begun
    for end in range(start, len(whole), 7):
        path.write_bytes(whole[:end] + b"\0" * (len(whole) - end))
        assert keys(path) == ["a"]
        with LineFile(path, "key") as file:
            file.repair()
        assert path.read_bytes() == whole[:start]


def test_a_writer_killed_at_any_moment_leaves_whole_groups_and_all_that_it_acknowledged(path):
    for pause in (0.0, 0.02):
        command = [sys.executable, "-m", "tests.support.records.writers", str(path)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"0\n"
            time.sleep(pause)
            child.kill()
            acknowledged = 1 + len(child.stdout.read().splitlines())
        groups = len(keys(path)) // 200
        assert groups in {acknowledged, acknowledged + 1}
        assert keys(path) == [f"{group} {line}" for group in range(groups) for line in range(200)]
        LineFile(path).append(rows("end of round"))
        assert keys(path)[-1] == "end of round"
        path.unlink()


# --- many at once


@pytest.mark.untraced
def test_four_processes_lose_no_line_and_mix_no_groups_while_readers_see_whole_ones(path):
    seen: list[int] = []
    done = threading.Event()

    def read_all_the_time() -> None:
        while not done.is_set():
            seen.append(len(keys(path)))

    reader = threading.Thread(target=read_all_the_time)
    reader.start()
    try:
        all_at_once(writers.append_batches, [(path, writer, 5, 20) for writer in range(4)])
    finally:
        done.set()
        reader.join()
    found = [tuple(map(int, key.split())) for key in keys(path)]
    assert sorted(found) == [(w, b, n) for w in range(4) for b in range(5) for n in range(20)]
    for start in range(0, len(found), 20):
        writer, batch, _ = found[start]
        assert found[start : start + 20] == [(writer, batch, number) for number in range(20)]
    assert {count % 20 for count in seen} == {0}
    assert not torn(path)


def test_processes_and_threads_that_add_the_same_keys_write_each_once(path):
    names = [f"k{number}" for number in range(20)]
    all_at_once(writers.append_keyed, [(path, names) for _ in range(2)])
    file = LineFile(path, "key")
    threads = [threading.Thread(target=lambda: [file.add(rows(each)) for each in (*names, *"abcdef")]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(keys(path)) == sorted([*names, *"abcdef"])


def test_a_forked_child_takes_turns_with_its_parent(path):
    script = """if True:
        import os, sys, time
        from pathlib import Path
        from tfgrpo.stores.files.lines import LineFile
        file = LineFile(Path(sys.argv[1]), "key")
        file.append([{"key": "before"}])
        held, say = os.pipe()
        if not (child := os.fork()):
            os.read(held, 1)
            file.append([{"key": "child"}])
            os._exit(0)
        with file:
            os.write(say, b"x")
            time.sleep(0.2)
            file.append([{"key": "parent"}])
        os.waitpid(child, 0)
    """
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=60, cwd=ROOT)
    assert keys(path) == ["before", "parent", "child"]


# --- what the disk refuses


def test_a_full_disk_leaves_files_as_they_were(path):
    written(path, *map(str, range(300)))
    (path.parent / "state.json").write_text("old")
    before = path.read_bytes()
    assert in_process(writers.append_on_a_full_disk, path, 20_000) == 0
    assert path.read_bytes() == before
    assert (path.parent / "state.json").read_text() == "old"
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["rows.jsonl", "state.json"]


def refuse(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


REFUSED = [
    (fcntl, "flock", lambda file: file.append(rows("b")), r"cannot be locked \(some network file systems have no locks\)"),
    (os, "write", lambda file: file.append(rows("b")), "cannot be written"),
    (os, "fsync", lambda file: file.append(rows(*"bc"), fsync=True), "cannot be synced"),
    (os, "fstat", lambda file: file.get("b"), "cannot be examined"),
    (os, "pread", lambda file: file.get("a"), "cannot be read"),
]


@pytest.mark.parametrize(("module", "call", "use", "what"), REFUSED, ids=[call for _, call, *_ in REFUSED])
def test_a_refused_system_call_is_a_store_error_that_names_the_file_and_leaves_it(path, monkeypatch, module, call, use, what):
    written(path, "a")
    file = LineFile(path, "key")
    file.append(rows("x"))
    before = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(module, call, refuse)
        with pytest.raises(StoreError, match=rf"rows\.jsonl: {what}: Input/output error"):
            use(file)
    assert path.read_bytes() == before
    file.append(rows("b"))  # and no other thread or process is kept out
    assert keys(path) == ["a", "x", "b"]


def test_a_new_file_is_synced_with_its_directory(path, monkeypatch):
    synced: list[str] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(Path(f"/proc/self/fd/{fd}").readlink().name), real(fd)))
    LineFile(path).append(rows("a"), fsync=True)
    LineFile(path).append(rows("b"), fsync=True)
    assert synced == ["rows.jsonl", "deep", "rows.jsonl"]
    later = LineFile(path.with_name("later.jsonl"))
    later.sync()
    later.append(rows("c"))
    for _ in range(2):
        later.sync()
    assert synced[3:] == ["later.jsonl", "deep"], "once, and nothing before there is a line"


def test_a_write_that_the_system_cuts_short_is_undone(path, monkeypatch):
    (before,) = written(path, "a")
    with monkeypatch.context() as patched:
        patched.setattr(lines, "os", writers._OsWith(lambda fd, data: os.write(fd, data[:50])))
        with pytest.raises(StoreError, match="the disk took 50 of"):
            LineFile(path).append(rows(*"bc"))
    assert path.read_bytes() == before


def test_a_path_that_cannot_be_opened_or_torn_file_that_cannot_be_written_is_a_store_error_and_nothing_is_lost(path):
    written(path, "a")
    for where in (path.parent, path / "below a file"):
        with pytest.raises(StoreError, match="cannot be opened"):
            LineFile(where).append(rows("a"))
    path.write_bytes(path.read_bytes() + b"half")
    path.with_name("rows.jsonl.torn").mkdir()
    with pytest.raises(StoreError, match=r"rows\.jsonl\.torn: Is a directory"):
        LineFile(path).append(rows("b"))
    assert path.read_bytes().endswith(b"half")


# --- costs


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts bytes by /proc")
def test_a_row_costs_a_row_once_the_file_is_known_and_reading_streams(path):
    file = LineFile(path, "key")
    for group in range(50):
        file.append(rows(*(f"{group} {number:050d}" for number in range(100))))
    before = bytes_read()
    file.add(rows("second"))
    with LineFile(path) as other:
        other.newest()
    reading = read_objects(path)
    list(itertools.islice(reading, 5))
    assert bytes_read() - before < 300_000 < path.stat().st_size / 2


def test_every_key_of_thousands_is_found_by_its_newest_line_and_none_that_was_removed(path):
    file, draw = LineFile(path, "key"), Random(7)
    known: dict[str, str] = {}
    for number in range(30):  # more keys than the index has room for at first, and after it grew
        names = [f"k{draw.randrange(2000)}" for _ in range(100)]
        texts = {name: f"{name} {place}" for place, name in enumerate(names)}
        file.append([*({"key": name, "text": texts[name]} for name in names), {"key": f"gone{number}"}])
        file.remove(f"gone{number}")
        known |= texts
    assert len(known) > 1400
    for opened in (file, LineFile(path, "key", reads=True)):
        names = [*(f"k{at}" for at in range(2000)), *(f"gone{at}" for at in range(30))]
        found = {name: opened.get(name) for name in names}
        assert {name: row["text"] for name, row in found.items() if row} == known
    assert opened.count == file.count == len(known)
    assert file.add([{"key": name, "text": "again"} for name in (*known, "new", "gone3")]) == 2
