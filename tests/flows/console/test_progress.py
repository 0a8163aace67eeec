"""A live view on a terminal, a few plain lines elsewhere; both say reward, spend and the time left."""

import io
from types import SimpleNamespace

from rich.console import Console as RichConsole

from tests.support.runs import running as kit
from tfgrpo.flows.console.console import PeopleConsole
from tfgrpo.flows.console.observer import SIMULATED_BANNER, EpochEnd, EpochStart, EpochSums, Losses, Observers, Progress
from tfgrpo.pipelines.settings.tree import BudgetSettings
from tfgrpo.stores.ledger import Totals
from tfgrpo.stores.outcomes import Failed, Scored


class Watch:
    """A clock that moves a second at every look."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        self.seconds += 1.0
        return self.seconds


def screen(*, terminal):
    return RichConsole(
        file=io.StringIO(), force_terminal=terminal, width=100, highlight=False, soft_wrap=True, legacy_windows=False
    )


def group(*rewards, arm="group"):
    rollouts = [
        SimpleNamespace(key=SimpleNamespace(arm=arm), outcome=Failed("E", "r") if reward is None else Scored(reward, ()))
        for reward in rewards
    ]
    return SimpleNamespace(rollouts=rollouts, key=SimpleNamespace(arm=arm), signal="mixed", reflected=False)


def plain(small_run):
    console = screen(terminal=False)
    small_run.told.play_to(Progress(console, now=Watch()))
    return console.file.getvalue()


def test_forced_colours_of_notebooks_and_ci_make_no_live_view(small_run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = PeopleConsole(file=io.StringIO(), width=100, highlight=False, soft_wrap=True)
    small_run.told.play_to(Progress(console, now=Watch()))
    assert console.file.getvalue() == plain(small_run)


def test_plain_lines_are_few_and_complete(small_run):
    said = plain(small_run)
    lines = said.splitlines()
    assert lines[0] == SIMULATED_BANNER
    for epoch in ("epoch 1", "epoch 2", "epoch 3/3 eval"):
        ours = [at for at, line in enumerate(lines) if line.startswith(epoch)]
        assert ours[-1] - ours[0] < 10
    assert lines[-1].startswith("In force: +")
    assert "likely to help; held-out tasks agree" in lines[-1]
    assert "forecast: " in said
    assert "reward 0." in said
    assert "with lessons 0." in said
    assert "no lessons 0." in said
    assert "calls, $0." in said
    assert " left" in said
    assert "lessons stored" in said
    assert "lessons on trial" in said
    assert "\x1b" not in said


def test_a_terminal_gets_a_live_view_that_is_gone_at_the_end(small_run):
    console = screen(terminal=True)
    progress = Progress(console, now=Watch())
    views = []
    for name, arguments in small_run.told.moments:
        getattr(progress, name)(*arguments)
        if name == "group_done":
            with console.capture() as capture:
                console.print(progress._view())
            views.append(capture.get())
    assert "epoch 1/3 train" in views[0]
    assert "24/24 groups" in views[23]
    assert "reward " in views[11]
    assert "reward " in views[23], "both halves of the lessons are one arm"
    assert "calls" in views[23]
    assert "$" in views[23]
    assert "left" in views[23]
    assert progress._live is None
    said = console.file.getvalue()
    assert "In force: +" in said
    lessons = [arguments[0] for name, arguments in small_run.told.moments if name == "lessons_stored"]
    first = next(record for records in lessons for record in records)
    assert first.summary32.split()[0] in said


def test_the_live_view_leaves_the_terminal_when_the_run_breaks(small_run):
    console = screen(terminal=True)
    progress = Progress(console)
    progress.epoch_started(EpochStart(1, 3, "train", 4, 0.7))
    assert progress._live is not None
    progress.closed()
    assert progress._live is None
    assert "\x1b[?25h" in console.file.getvalue()


def test_lost_rollouts_and_caps_are_in_the_figures():
    console = screen(terminal=False)
    progress = Progress(console, now=Watch())
    progress._budget = BudgetSettings(max_usd=2.0, max_calls=50)
    progress.epoch_started(EpochStart(2, 3, "train", 5, 0.7))
    progress.group_done(group(1.0, None), Totals(calls=7, nano_usd=5 * 10**8, unknown_price_calls=1))
    progress.epoch_ended(EpochEnd(2, "train", 1.0, 1, 1, 0, 0, "1 × failed: 503"))
    said = console.file.getvalue()
    assert "reward 1.000, 1 lost, 7 of 50 calls, $0.5000 + 1 call of unknown price of $2" in said
    assert "1 lost (1 × failed: 503)," in said.splitlines()[-1]


def test_rewards_of_two_arms_are_never_averaged():
    tally = EpochSums(EpochStart(3, 3, "eval", 4, 0.3))
    assert tally.reward == "no reward yet"
    tally.add([group(0.0, 0.0, arm="none")])
    assert tally.mean_reward == 0.0
    tally.add([group(1.0, 1.0, arm="library")])
    assert tally.reward == "with lessons 1.000, no lessons 0.000"
    assert (tally.scored, tally.mean_reward, tally.solve_rate) == (4, 1.0, 1.0)
    halves = EpochSums(EpochStart(1, 3, "train", 4, 0.7))
    halves.add([group(0.0, 0.5, arm="one"), group(1.0, 0.5, arm="other"), group(1.0)])
    assert halves.reward == "reward 0.600", "the two halves of a group are one mean"
    assert halves.end([None, None]).lessons == 2


def test_losses_are_counted_by_their_first_hundred_reasons():
    losses = Losses()
    for reason in ("late\nby far", None, *map(str, range(200)), "late by far"):
        losses.add(reason)
    assert (losses.asked, losses.lost, losses.mostly, len(losses.reasons)) == (203, 202, "2 × late by far", 100)


class Broken:
    """A view that raises at one moment."""

    def __init__(self):
        self.told = 0

    def __getattr__(self, name):
        def tell(*_):
            self.told += 1
            raise BrokenPipeError("the terminal went away")

        return tell


def test_a_view_that_breaks_does_not_break_the_run(tmp_path, caplog):
    broken, healthy = Broken(), screen(terminal=False)
    observers = Observers(broken, Progress(healthy))
    summary = kit.run(tmp_path, observer=observers, **kit.SMALL)
    assert summary.status == "finished"
    assert broken.told == 1
    assert "points" in healthy.file.getvalue()
    assert "Broken shows nothing more" in caplog.text
