"""What is wrong leaves the champion within some nights, and nothing that is right does. Whole runs, without Prefect."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.records.promotions import record_promotion
from tests.support.records.records import NOW, make_record
from tests.support.runs.running import RUN, TASK, lines, manifest, run
from tfgrpo.flows.run.champion import champion_library
from tfgrpo.prompt_packs.loader import load_prompt_pack
from tfgrpo.prompt_packs.stamps import approved_stamps, pack_stamp
from tfgrpo.stores.experiences.library import Library, Promotion, chain_problems, promotions
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.tasks.models.simulated.worlds.data import Advice
from tfgrpo.tasks.models.simulated.worlds.puzzle import open_world

WORLD = open_world("arithmetic")
PITFALLS = tuple(WORLD.pitfalls.values())
HARMFUL = PITFALLS[:5]
ASKED = {"dry_run": True}
UNCONVINCED = {"dry_run": True, "sample_size": 60, "batch_size": 30, "gate__confidence": 0.9999}


def store_of(task: TaskPaths) -> ExperienceStore:
    return ExperienceStore(task.experiences, approved=approved_stamps([load_prompt_pack("arithmetic")]), task_id=TASK)


def plant(out: Path) -> TaskPaths:
    """Promote the right lesson on every pitfall, and the opposite of five of them, each taught by two groups."""
    task = TaskPaths.of(out, TASK)
    stamp = pack_stamp(load_prompt_pack("arithmetic"))

    def lesson(name: str, advice: Advice) -> object:
        return make_record(
            name, pack=stamp, task_id=TASK, domain="arithmetic", summary32=advice.text, polarity=advice.polarity,
            tags=("numbers",), evidence=(f"{name}-1/0", f"{name}-2/0"),
        )  # fmt: skip

    right = [lesson(f"right-{each.name}", each.good_advice[0]) for each in PITFALLS]
    wrong = [lesson(f"wrong-{each.name}", each.bad_advice[0]) for each in HARMFUL]
    library = Library((*right, *wrong))
    store_of(task).record_batch(library.entries, out / "manifest.json")
    promotion = Promotion(
        run_id="before", decided_at=NOW, decision="promote", library_id=library.library_id, estimate=None, low=None,
        high=None, pairs=0, simulated=True, experience_ids=tuple(each.experience_id for each in library.entries),
    )  # fmt: skip
    record_promotion(task.promotions, promotion)
    return task


def sides(library: Library) -> Counter[int]:
    """Lessons that help, 1, and that harm, -1."""
    stances: Iterable[int] = (
        sum(WORLD.lexicon.stances(each.polarity, each.summary32).values()) for each in library.entries
    )
    return Counter((one > 0) - (one < 0) for one in stances)


def in_force(task: TaskPaths) -> Library:
    return champion_library(store_of(task), task, simulated=True)


@pytest.mark.untraced
def test_four_of_five_harmful_lessons_leave_within_five_nights_and_no_right_one(tmp_path):
    task = plant(tmp_path)
    before = after = sides(in_force(task))
    assert before[-1] == 5
    for number in range(5):
        assert run(tmp_path, run_id=f"night-{number}", sample_size=44, batch_size=22, **ASKED).exit_code == 0
        after = sides(in_force(task))
        if after[-1] <= 1:
            break
    assert after[-1] <= 1
    assert after[1] >= before[1]


@pytest.mark.untraced
def test_no_wrong_lesson_is_in_force_after_three_nights_of_the_world_in_which_one_stayed_for_ten(tmp_path):
    for number in range(3):
        assert run(tmp_path, run_id=f"night-{number}", seed=3, simulated__seed=3, **ASKED).exit_code == 0
        after = sides(in_force(TaskPaths.of(tmp_path, TASK)))
        if after[1] == len(PITFALLS) and not after[-1]:
            return
    raise AssertionError(after)


@pytest.fixture(scope="module")
def unconvinced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A night whose gate promotes nothing, with harmful lessons in force."""
    out = tmp_path_factory.mktemp("unconvinced")
    plant(out)
    assert run(out, run_id=RUN, **UNCONVINCED).exit_code == 0
    return out


def told(out: Path) -> list[dict[str, object]]:
    """The account events of a task, clocks aside."""
    rows = lines(TaskPaths.of(out, TASK).accounts)
    return [{key: value for key, value in row.items() if key != "created_at"} for row in rows]


def test_what_the_accounts_refute_leaves_the_champion_without_a_promotion_and_on_record(unconvinced):
    task = TaskPaths.of(unconvinced, TASK)
    _, retired, decided = promotions(task.promotions)
    assert (retired.decision, decided.decision) == ("retire", "undecided")
    assert retired.reasons
    assert all(name.startswith("wrong-") for name in retired.reasons)
    assert all("against" in reason for reason in retired.reasons.values())
    named = {entry.experience_id for entry in in_force(task).entries}
    assert named.isdisjoint(retired.reasons)
    assert len(named) == len(PITFALLS) + len(HARMFUL) - len(retired.reasons)
    warnings = manifest(unconvinced)["warnings"]
    assert all(any(f"lesson {name} left the champion" in text for text in warnings) for name in retired.reasons)
    assert chain_problems(task.promotions) == []


def test_a_lesson_of_a_night_that_promoted_nothing_is_known_in_the_next(unconvinced, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(unconvinced, out)
    learned = {name for name, each in manifest(out)["tfgrpo"]["accounts"].items() if each["net"] > 0}
    assert run(out, run_id="next", **UNCONVINCED).exit_code == 0
    merged = {name for row in lines(TaskPaths.of(out, TASK).experiences) for name in row["supersedes"]}
    assert learned - merged <= set(manifest(out, "next")["tfgrpo"]["accounts"])
    assert manifest(out, "next")["settings"]["tfgrpo"]["night"] == 1, "a retirement is no night"


def test_a_night_that_was_stopped_or_is_replayed_comes_to_the_same_accounts(unconvinced, tmp_path):
    assert run(unconvinced, replay=RUN).exit_code == 0
    plant(tmp_path)
    assert run(tmp_path, run_id=RUN, max_calls=230, **UNCONVINCED).status == "stopped"
    stopped = told(tmp_path)
    assert run(tmp_path, run_id="meanwhile", **UNCONVINCED).exit_code == 0
    resumed = run(tmp_path, resume=RUN, max_calls=100_000)
    assert resumed.exit_code == 0, resumed.message
    own = [row for row in told(tmp_path) if row["run_id"] != "meanwhile"]
    assert own == told(unconvinced)
    assert stopped == own[: len(stopped)]
    assert len(stopped) > len(PITFALLS) + len(HARMFUL), "the batches before the stop are on record"
    assert run(tmp_path, replay=RUN).exit_code == 0
