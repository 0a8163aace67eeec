"""The morning page: complete, self-contained, and harmless whatever a model wrote."""

import html
import json
import math
import re
import shutil
import tracemalloc
from collections import defaultdict
from statistics import fmean, stdev

import pytest

from tests.support.records.line_files import seal
from tests.support.rewards.judges import CALIBRATION
from tests.support.runs import running as kit
from tests.support.runs.report_pages import Elsewhere, checked_page, edit, edit_rows, page_of
from tfgrpo.flows.report.attempts import overview, worst_items
from tfgrpo.flows.report.night import Night
from tfgrpo.flows.report.page import write_report
from tfgrpo.flows.run.lessons import STATES
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.decisions import read_decisions, record_decided
from tfgrpo.stores.files.lines import read_objects

HOSTILE = "</pre><script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)>\x1b[2J\u202e{{ 7 * 7 }}"


@pytest.fixture(scope="module")
def shown(small_run):
    """The page that the run left."""
    return checked_page(small_run.paths.report.read_text()).text


def cells(run, heading, tag="h2"):
    """Return the texts of the cells of each row of the table below a heading."""
    text = write_report(Night.of(run.task, run.paths)).read_text()
    table = text.partition(f">{heading}</{tag}>")[2].partition("</table>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", table, re.DOTALL)]
    return [[re.sub("<[^>]+>", "", cell) for cell in row] for row in rows if row]


def manifest(**fields):
    """Return a change of the run's manifest; a dict is merged into the block of its name."""

    def change(run):
        def merge(value):
            for name, new in fields.items():
                value[name] = {**value[name], **new} if isinstance(new, dict) else new

        edit(run.paths.manifest, merge)

    return change


def rows(name, **fields):
    """Return a change of every line of a file of the run, or of the lessons of its task."""
    return lambda run: edit_rows(getattr(run.paths, name, run.task.experiences), lambda row: row.update(fields))


def lose_some(run):
    def lose(row):
        if row["index"] == 0:
            reason = f"after {len(row['item_id'])} s"
            row.update(outcome={"name": "failed", "error_type": "ModelTimeout", "reason": reason}, scores=[])

    edit_rows(run.paths.rollouts, lose)


def contradict(run):
    def change(value):
        lessons = value["tfgrpo"]["lessons"]
        first, second = list(lessons)[:2]
        lessons[first]["opposites"] = [second]
        lessons["exp-elsewhere"] = lessons[first]

    edit(run.paths.manifest, change)


DAY = {"started_at": "2026-01-01T00:00:00+00:00", "ended_at": "2026-01-01T08:00:00+00:00", "timing": {"wall_s": 59.2}}
STAGES = [
    {"name": "learn", "epochs": 3},
    {"name": "spec-guard", "ok": False, "checks": [{"name": "budget", "ok": False, "evidence": "over"}]},
    {"name": "spec-guard", "ok": False, "problems": ["the disk is gone"]},
]
FAILED = {"error_type": "RepairExhausted", "reason": "no JSON", "call_key": None}


TOGETHER = [
    (manifest(decision={"lost": {"library": [3, 96], "none": [0, 96]}}), ["3 of 96 attempts lost"]),
    (manifest(**DAY), ["· took 59s ·"]),
    (
        manifest(ledger={"nano_usd": 144_500_000, "at_risk_nano": 41_500_000, "at_risk_tokens": 777}),
        ["$0.1445, and up to $0.0415 of unknown usage", "up to 777 of unknown usage"],
    ),
    (manifest(settings={"packs_root": "my packs"}), ["experiences export --task-id", "--packs-root 'my packs'"]),
    (manifest(warnings=["a price is unknown"], stages=STAGES), ["a price is unknown", "brokenbudgetover", "the disk is gone"]),
    (manifest(tfgrpo={"rejected": [["", "merge: unknown L9"]]}), ["(without a text)", "merge: unknown L9"]),
    (rows("groups", reflection_failure=FAILED), ["reflections without an answer: RepairExhausted"]),
    (rows("lessons", cause="one attempt forgot the tip"), ["because: one attempt forgot the tip"]),
    (rows("rollouts", output="x" * 5000), ["[… 3000 characters left out …]"]),
    (contradict, ["contradicts exp-", "of the two only the better is on trial", "1 more are in another store"]),
]
APART = [
    (manifest(**DAY, resumed_at="2026-01-01T07:59:00+00:00"), ["· its last part took 59s ·"]),
    (lose_some, ["failed · ModelTimeout", "after 7 s", "no reward: failed", "ModelTimeout: after 7 s"]),
]


@pytest.mark.parametrize("changes", [TOGETHER, APART])
def test_what_the_records_say_is_on_the_page(own_run, shown, changes):
    for change, _ in changes:
        change(own_run)
    after = page_of(own_run).text
    for _, said in changes:
        assert [text for text in said if text not in after] == []
        assert not all(text in shown for text in said)


TOOL = {"tool": "ledger", "calls": 2, "errors": 1, "tokens": 3, "cost_usd": None, "latency_ms": 3000.0}
TABLES = [
    (
        manifest(tfgrpo={"per_tool_metrics": [TOOL, {**TOOL, "calls": 0, "cost_usd": 0.0}]}),
        "Tools",
        [["ledger", "2", "1", "3", "unknown", "1.5 s"], ["ledger", "0", "1", "3", "$0.0000", "–"]],
    ),
    (
        manifest(tfgrpo={"calibration": CALIBRATION}),
        "How far the judges can be believed",
        [["judge", "10", "0", "81 % of 8", "–", "75 % of 4", "–"]],
    ),
]


def test_what_is_unknown_is_no_zero_and_every_share_names_its_base(own_run):
    for change, heading, expected in TABLES:
        change(own_run)
        assert cells(own_run, heading) == expected


def test_the_decision_comes_first_and_figures_are_those_of_the_files(small_run, shown):
    known = json.loads(small_run.paths.manifest.read_text())
    assert "SIMULATED model" in shown
    assert shown.index(known["decision"]["sentence"]) < shown.index("held out")
    for arm, name in (("library", "with lessons"), ("none", "without")):
        mean, low, high = (f"{known['decision']['rewards'][arm][each]:.3f}" for each in ("mean", "low", "high"))
        assert f"Held-out reward {name}: {mean} ({low} to {high})" in shown
    assert f"{known['ledger']['calls']:,} calls" in shown
    assert f"{known['ledger']['tokens']:,} tokens" in shown
    for block in json.loads(small_run.paths.per_epoch.read_text())["epochs"].values():
        assert all(f"{arm['reward_mean']['mean']:.3f}" in shown for arm in block["arms"].values())


def test_what_two_attempts_reach_is_in_manifest_and_page(small_run, shown):
    decision = small_run.summary.details["decision"]
    reached = {}
    for arm in ("library", "none"):
        rewards = defaultdict(list)
        for each in read_objects(small_run.paths.rollouts):
            if (each["phase"], each["arm"]) == ("eval", arm):
                rewards[each["item_id"]].append(each["outcome"]["reward"])
        some, every = (fmean(how(reward == 1.0 for reward in group) for group in rewards.values()) for how in (any, all))
        found = decision["rewards"][arm]
        assert (found["k"], found["mean_at_k"]) == (2, pytest.approx(found["mean"]))
        assert (found["pass_at_k"], found["pass_hat_k"]) == (pytest.approx(some), pytest.approx(every))
        means = [fmean(group) for group in rewards.values()]
        assert found["error"] == pytest.approx(stdev(means) / math.sqrt(len(means)))
        reached[arm] = (f"{some:.0%}".replace("%", " %"), f"{every:.0%}".replace("%", " %"))
    assert f"for {reached['library'][0]} of the items with lessons and {reached['none'][0]} without (pass@2)" in shown
    assert f"all have it for {reached['library'][1]} and {reached['none'][1]} (pass^2)" in shown


def test_every_part_an_engineer_looks_for_is_there(shown):
    for heading in (
        "Epochs",
        "in force)",
        "Not taken up",
        "Calls and cost by role",
        "One attempt",
        "Checks of what the run wrote",
        "Settings that were given",
        "Go on from here",
    ):
        assert heading in shown, heading
    assert "sweep, with lessons" in shown
    assert "sweep, no lessons" in shown
    for role in ("attempts", "reflection", "curation"):
        assert role in shown
    assert "command line --sample-size" in shown
    assert "tfgrpo compare small" in shown


def test_every_lesson_is_shown_with_the_contrast_that_taught_it(small_run, shown):
    records = {row["experience_id"]: row for row in kit.lines(small_run.task.experiences)}
    rollouts = {row["rollout_id"]: row for row in kit.lines(small_run.paths.rollouts)}
    for lesson in small_run.summary.details["lessons"]:
        record = records[lesson["id"]]
        assert record["summary32"] in shown
        best = rollouts[record["evidence"][0]]
        assert best["rollout_id"] in shown
        assert best["output"] in shown
        assert f"reward {best['outcome']['reward']:.3f}" in shown
    assert "better" in shown
    assert "worse" in shown
    assert "euros" in shown  # prompts of the items


def test_what_a_model_wrote_is_text_and_nothing_else(own_run):
    def hostile(row):
        row.update(output=HOSTILE, summary=HOSTILE)
        for score in row["scores"]:
            score["evidence"] = HOSTILE

    edit_rows(own_run.paths.rollouts, hostile)
    edit_rows(own_run.task.experiences, lambda row: row.update(summary32=HOSTILE))
    edit_rows(own_run.paths.items, lambda row: row.update(prompt=HOSTILE, answer=HOSTILE, system_prompt=HOSTILE))
    edit_rows(own_run.paths.prompts, lambda row: row.update(experience_ids=[HOSTILE]))
    edit_rows(own_run.paths.journal, lambda row: row["payload"].update(content=HOSTILE, model=HOSTILE))
    edit_rows(own_run.paths.groups, lambda row: row.update(rejected=[[HOSTILE, HOSTILE]]))

    def manifest(value):
        value.update(warnings=[HOSTILE], message=HOSTILE, model=HOSTILE)
        value["decision"].update(sentence=HOSTILE, notes=[HOSTILE])
        value["settings_table"][0]["value"] = HOSTILE

    edit(own_run.paths.manifest, manifest)
    page = page_of(own_run)
    assert "alert(1)</script>" in page.text
    assert "{{ 7 * 7 }}" in page.text


def items_on_the_page(run):
    """The block of each item, by id, in their order."""
    section = run.paths.report.read_text().partition("<h2>Items and their attempts")[2]
    blocks = section.partition("</section>")[0].split("<details>")[1:]
    return {html.unescape(block.split("<summary>")[1].split(" <span")[0]): html.unescape(block) for block in blocks}


def test_each_item_opens_to_its_question_reference_and_attempts_the_lowest_first(small_run, shown):
    blocks = items_on_the_page(small_run)
    tallies = overview(small_run.paths)
    assert list(blocks) == worst_items(tallies)[:50]
    assert len(tallies) > 50
    assert f"{len(tallies) - 50} more items are not on this page" in shown
    assert "An item whole: tfgrpo show small ITEM --task-id tfgrpo-learning" in shown
    items = {row["item_id"]: row for row in kit.lines(small_run.paths.items)}
    rows = kit.lines(small_run.paths.rollouts)
    for name, block in blocks.items():
        assert items[name]["prompt"] in block
        assert f"<pre>{items[name]['answer']}</pre>" in block
        own = [row for row in rows if row["item_id"] == name]
        shown = re.findall(r"<b>reward ([\d.]+)</b>", block)
        assert shown == sorted(f"{row['outcome']['reward']:.3f}" for row in own)[:6]
        assert all(row["output"] in block for row in own[:1] if len(own) <= 6)
        assert (f"{len(own) - 6} attempts not shown" in block) is (len(own) - 6 > 1)


def test_the_blocks_of_the_items_stay_small_whatever_was_written(own_run):
    def long(row):
        row.update(output=f"{'x' * 4_000} end")
        row["scores"][0]["evidence"] = "y" * 4_000

    before = len(own_run.paths.report.read_text())
    edit_rows(own_run.paths.rollouts, long)
    edit_rows(own_run.paths.items, lambda row: row.update(prompt="z" * 4_000, answer="z" * 4_000))
    page = write_report(Night.of(own_run.task, own_run.paths)).read_text()
    blocks = items_on_the_page(own_run)
    assert max(map(len, blocks.values())) < 30_000
    assert all(" end</pre>" in block and "characters left out" in block for block in blocks.values())
    assert len(page) < before + 500_000


def test_lessons_of_earlier_runs_bring_their_evidence_along(own_run):
    summary = kit.run(own_run.out, run_id="second", seed=1, **kit.SMALL)
    assert summary.status == "finished"
    run = Elsewhere(own_run.out, "second")
    manifest = json.loads(run.paths.manifest.read_text())
    records = {row["experience_id"]: row for row in kit.lines(own_run.task.experiences)}
    kept = [name for name in manifest["in_force"]["experience_ids"] if name in manifest["tfgrpo"]["lessons"]]
    text = page_of(run).text
    assert kept
    assert all(records[name]["evidence"][0] in text for name in kept)


def test_from_the_second_night_on_the_gain_is_drawn_over_nights_and_every_decision_listed(own_run):
    again = Elsewhere(own_run.out, "again")
    shutil.copytree(own_run.paths.root, again.paths.root)
    edit(again.paths.manifest, lambda value: value.update(run_id="again", night=2))
    (first,) = read_decisions(own_run.task.promotions)
    for name, decision in (("retire-2", "retire"), ("again", "not yet")):
        who = {"total": None, "who": "ann", "why": HOSTILE} if decision == "retire" else {}
        later = first.model_copy(
            update={"run_id": name, "decision": decision, "experience_ids": (), "proven": False, "night": 2, **who}
        )
        record_decided(own_run.task.promotions, lambda _, later=later: later)
    text = page_of(again).text
    assert "The gain over nights" in text
    gain = f"{first.total.mean:+.1f} ({first.total.low:+.1f} … {first.total.high:+.1f})"
    assert f"night 1, small: in force, {gain} points" in text
    assert f"night 2, again: not yet, {gain} points" in text
    assert "by ann" in text
    assert again.paths.report.read_text().count('class="text long"') == 1, (
        "a remark has room for its words, and no remark takes none"
    )
    first_label = "in force, proven" if first.proven else "in force"
    assert [row[2] for row in cells(again, "Every night and change (3)", "summary")] == [
        "not yet (SIMULATED)",
        "retire (SIMULATED)",
        f"{first_label} (SIMULATED)",
    ]
    assert "The gain over nights" not in page_of(own_run).text


def test_each_lesson_has_its_state_effect_attempts_groups_and_price_the_best_first(own_run):
    lessons = json.loads(own_run.paths.manifest.read_text())["tfgrpo"]["lessons"]
    name = list(lessons)[-1]
    out = {"state": "kept out", "kept_out": "ann says it is wrong"}
    edit(own_run.paths.manifest, lambda it: it["tfgrpo"]["lessons"][name].update(out))
    rows = table_of_lessons(own_run)
    lessons[name].update(out)
    for known, row in zip(sorted(lessons.values(), key=order), rows, strict=True):
        effect = "{mean:+.1f} ({low:+.1f} … {high:+.1f})".format_map(known["effect"])
        counts = [known["groups_for"], known["groups_against"], known["tokens"]]
        assert row[-5:] == [effect, f"{known['effect']['attempts']:,}", *map(str, counts)]
    assert "ann says it is wrong" in page_of(own_run).text
    edit(own_run.paths.manifest, lambda value: value["tfgrpo"]["lessons"].clear())
    now = len(own_run.summary.details["decision"]["experience_ids"])
    assert f"Lessons (0 known, {now} in force)" in page_of(own_run).text, "those of a run that overtook it are not known to it"


def order(known):
    return STATES.index(known["state"]), -known["effect"]["mean"]


def table_of_lessons(run):
    """Return the cells of the lessons' rows, of which the second holds the lesson."""
    text = write_report(Night.of(run.task, run.paths)).read_text()
    table = text.partition("<h2>Lessons (")[2].partition("</section>")[0]
    found = re.findall(r'<tr><td class="key[^"]*">.*?</td></tr>\n', table, re.DOTALL)
    return [[html.unescape(cell) for cell in re.findall(r"<td[^>]*>([^<]*)</td>", row)] for row in found]


def test_no_key_but_the_version_is_needed(own_run):
    known = json.loads(own_run.paths.manifest.read_text())
    optional = ("tfgrpo", "decision", "ledger", "forecast", "stages", "pack", "settings")
    for keys in (*((key,) for key in optional), optional):
        own_run.paths.manifest.write_text(json.dumps({key: value for key, value in known.items() if key not in keys}))
        page_of(own_run)
    edit(own_run.paths.manifest, lambda value: value.pop("schema_version") and None)
    with pytest.raises(CorruptFile):
        write_report(Night.of(own_run.task, own_run.paths))


def test_a_damaged_file_is_named(own_run):
    for name in ("groups", "rollouts", "metrics", "items"):
        path = getattr(own_run.paths, name)
        whole = path.read_bytes()
        for damage in (b"{torn\n", b'{"some": "object"}\n'):
            path.write_bytes(whole + damage)
            with pytest.raises(CorruptFile, match=re.escape(str(path))):
                write_report(Night.of(own_run.task, own_run.paths))
        path.write_bytes(whole)


@pytest.mark.parametrize("name", ["rollouts", "items"])
def test_a_damaged_file_of_an_earlier_run_is_named_and_the_page_is_written(own_run, name):
    earlier = own_run.task.run("earlier")
    shutil.copytree(own_run.paths.root, earlier.root)
    edit_rows(own_run.task.experiences, lambda row: row.update(run_id="earlier"))
    for path in (own_run.paths.rollouts, own_run.paths.items):
        path.write_text("")
    path = getattr(earlier, name)
    assert "better</b>" in write_report(Night.of(own_run.task, own_run.paths)).read_text()
    path.write_bytes(path.read_bytes() + b"{torn\n")
    page = write_report(Night.of(own_run.task, own_run.paths)).read_text()
    assert html.unescape(page).count(str(path)) == 1
    assert ("better</b>" in page) is (name == "items")


@pytest.mark.untraced
def test_memory_does_not_grow_with_the_number_of_rollouts(own_run):
    row = kit.lines(own_run.paths.rollouts)[0]
    with own_run.paths.rollouts.open("a") as file:
        for number_of in range(300):
            more = {**row, "rollout_id": f"more/{number_of}", "output": "y" * 80_000}
            file.write(json.dumps(more) + "\n")
    seal(own_run.paths.rollouts)
    assert own_run.paths.rollouts.stat().st_size > 24_000_000
    tracemalloc.start()
    try:
        write_report(Night.of(own_run.task, own_run.paths))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12_000_000
