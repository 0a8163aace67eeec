"""The command line: every command with its help, arguments, options, and the function that gets them.

A function is imported when its command is called, and its parameters are named like the options here. ``choice`` is
made of the options of a task, ``settings`` of those of settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from click import Parameter

from tfgrpo.flows.console.parsing import Argument, Command, Commands, NumberParameter, Option, Words, flag
from tfgrpo.pipelines.settings.pipeline_file import shipped_pipelines

_RUN: Final = "run id or its beginning, directory of a run, or latest for the newest of the task"
_DEFAULTS: Final = "Defaults hold where neither the pipeline file nor the variable in parentheses sets a value."
_WHOLE, _NUMBER = partial(NumberParameter, int), partial(NumberParameter, float)
_SHARE: Final = _NUMBER(least=0, most=1)

_task = (
    Option("--out", "directory of the tasks [out] (TFGRPO_OUT)", section="Task", metavar="DIR"),
    Option("--task-id", "name of the task [the one used last] (TFGRPO_TASK_ID)", section="Task", metavar="TASK"),
)
_packs = partial(Option, "--packs-root", section="Task", metavar="DIR")
_own_packs = (*_task, _packs("directory of your own packs, besides those that ship (TFGRPO_PACKS_ROOT)"))
_other_packs = _packs("directory of your own packs, instead of those that ship (TFGRPO_PACKS_ROOT)")
_set = partial(Option, "--set", name="assignments", multiple=True, metavar="KEY=VALUE")
_pipeline = partial(Option, "--pipeline", metavar="P")
_planned = _pipeline(
    f"a pipeline file, or by name: {', '.join(shipped_pipelines())} [general for data that are named, else tfgrpo-learning]",
    name="planned",
)
_judging = _pipeline("data mix: a pipeline file, or a shipped one by name, whose model its judges ask, within its budget")
_run_id = Option("--run-id", "name of the run; made from the time when absent", metavar="NAME")
_host = Option("--host", "address to bind", default="127.0.0.1", metavar="TEXT")
_with_settings = partial(Command, settings="flows.orchestration.request:RunRequest")
_by = Option("--by", "who decides [the login name]", metavar="NAME")
_why = Option("--why", "the reason, required", metavar="TEXT")
_id = Argument("name", "an experience id or its beginning", metavar="ID")


def _port(default: int) -> Option:
    return Option("--port", "port, 0 for any free one", type=_WHOLE(least=0, most=65_535), default=default)


def _of_lessons(function: str, help: str, *params: Parameter, module: str = "experiences") -> Command:  # noqa: A002 - as of a command
    return Command(f"lessons.{module}:{function}", help, *params, *_own_packs)


_LESSONS: Final[Mapping[str, Command]] = {
    "list": _of_lessons(
        "list_lessons",
        "list the lessons in force, or every record: state, effect, evidence",
        flag("--all", "every record, not only the lessons in force", name="every"),
    ),
    "show": _of_lessons(
        "show",
        "print whole records",
        Argument("names", "experience ids, or their beginnings", nargs=-1, required=True, metavar="ID..."),
    ),
    "blame": _of_lessons("blame", "trace a lesson back to the rollouts that showed it and the rows that measured it", _id),
    "review": _of_lessons("review", "show the lessons in force, on trial and known: effect, support, opposites, origin"),
    "retire": _of_lessons("retire", "keep a lesson out, until a rollback to a library with it", _id, _why, _by),
    "approve": _of_lessons(
        "approve", "let a lesson in that was held for review, retired or kept out by the sweep", _id, _why, _by
    ),
    "rollback": _of_lessons(
        "rollback",
        "put an earlier library into force",
        Argument("name", "a run id, the number of a change in `tfgrpo history`, or none", metavar="TO"),
        Option("--why", "the reason", metavar="TEXT"),
        _by,
    ),
    "export": _of_lessons(
        "export",
        "print the lessons in force in a form that other agents read",
        Option("--to", "form of the export [text]", type=Words("tasks.exports.lessons:LESSON_FORMS")),
    ),
    "import": _of_lessons(
        "import_lessons",
        "show the lessons that another task exported, and store them after review",
        Argument("file", "a file of `tfgrpo experiences export --to json`"),
        Option("--pack", "pack to stamp the lessons for [the task's own, else the file's]", metavar="ID"),
        Option("--reviewed-by", "store the lessons, which this person has read", metavar="NAME"),
        flag("--in-force", "also put them into force at once, until the evidence speaks against them", name="now"),
    ),
    "measure": _of_lessons(
        "measure",
        "measure the effects of lessons with the settings of the task's newest run",
        Argument(
            "names", "experience ids, or their beginnings; without any those on trial and in force", nargs=-1, metavar="[ID]..."
        ),
        Option("--rollouts", "attempts", type=_WHOLE(least=6, most=1_000_000), default=600),
        Option(
            "--control",
            "compare the lessons in force with a control (`same`: themselves), in place of measuring lessons",
            type=Words("flows.orchestration.request:Control"),
        ),
        _set("a setting that a resumed run may change, such as budget.max_usd"),
        module="measure",
    ),
}
_PACKS: Final[Mapping[str, Command]] = {
    "stamp": Command(
        "packs:stamp", "stamp a pack after editing it", Argument("pack", "id or directory of a pack"), _other_packs
    ),
    "verify": Command(
        "packs:verify",
        "check one pack, or all",
        Argument("pack", "id or domain of a pack; all without it", required=False),
        _other_packs,
    ),
    "render": Command(
        "packs:render",
        "print the text of a pack as an actor gets it",
        Argument("pack", "id or domain of a pack"),
        Option("--task-id", "with the lessons in force of this task", section="Task", metavar="TASK"),
        _task[0],
        _other_packs,
    ),
}
COMMANDS: Final[Mapping[str, Command | Commands]] = {
    "init": Command(
        "init:init",
        "write a pipeline file for data of your own: asks for data, endpoint and model, and checks all of it",
        Argument("data", "a dataset: .jsonl, .json, .csv, .tsv or .parquet file, a folder, hf:name", required=False),
        Option("--base-url", "the endpoint, OpenAI-compatible (OPENAI_BASE_URL)", metavar="URL"),
        Option("--model", "the model there (TFGRPO_MODEL)", metavar="NAME"),
        Option("--id", "the column of the ids [by its name; rows are numbered without one]", metavar="COLUMN"),
        Option("--prompt", 'the column of the prompts, or "{question} A) {A} B) {B}" [by its name]', metavar="COLUMN"),
        Option("--answer", "the column of the reference answers [by its name]", metavar="COLUMN"),
        _pipeline("the pipeline file to write, once all checks pass", default="tfgrpo.yaml"),
        flag("--yes", "ask nothing: take what the options, the environment and the data say"),
        flag("--force", "replace that file"),
        epilog="Asks only at a terminal. Spends nothing.",
    ),
    "run": _with_settings(
        "run:run",
        "learn: cohorts, groups, lessons, held-out sweep, decision",
        _planned,
        _run_id,
        Option("--resume", "continue a run, or the latest; no answered call is sent again", metavar="RUN"),
        flag("--pay-again", "with --resume: also pay again for the answered calls that a damaged journal has lost"),
        Option("--replay", "repeat a run, or the latest, from its journal, into another store", metavar="RUN"),
        epilog=f"{_DEFAULTS} Ctrl-C and SIGTERM stop a run, to be resumed; it continues when its terminal is closed.",
    ),
    "test": _with_settings(
        "run:test",
        "compare the lessons in force with none on the sealed items (dataset.sealed), once for each library",
        _planned,
        _run_id,
        epilog="Learns nothing. One that is stopped is continued by `tfgrpo run --resume RUN`.",
    ),
    "doctor": _with_settings(
        "doctor:doctor",
        "check everything a run needs without spending anything",
        _planned,
        flag("--ping", "ask each model for one token, which costs a little, and name the setting that mends each refusal"),
        epilog=_DEFAULTS,
    ),
    "config": _with_settings("config:config", "show every setting and where its value came from", _planned, epilog=_DEFAULTS),
    "deploy": Command(
        "deploy:deploy",
        "set a Prefect server up for nightly runs: work pool, deployments, schedule; check each",
        Option("--notify", "also apply the automations of ops/, which notify by this notification block", metavar="BLOCK"),
        epilog="Needs PREFECT_API_URL, and prefect.yaml in TFGRPO_HOME or in the working directory. Makes the work pool where "
        "it is missing, and applies every deployment; may be repeated.",
    ),
    "estimate": _with_settings("doctor:estimate", "forecast calls, tokens and money of a run", _planned, epilog=_DEFAULTS),
    "experiences": Commands(
        "tfgrpo experiences", f"look at what was learned, take it back, share it: {', '.join(_LESSONS)}", _LESSONS
    ),
    "history": Command(
        "runs:history",
        "list every night with its decision, gain, lessons, calls and cost, and every change by a person, newest last",
        *_task,
    ),
    "export": Command(
        "batches:export",
        "convert the groups of a run for a trainer: TRL, verl, OpenRLHF, JSONL",
        Argument("run", f"{_RUN}, or a .jsonl file of groups"),
        Option("--to", "form of the export, required", type=Words("tasks.exports.choosing:TARGETS")),
        Option("--file", "file to write [out/TASK/exports/RUN-TARGET.jsonl; --to jsonl: RUN-groups.jsonl]", metavar="FILE"),
        Option(
            "--prompt",
            "prompts with the pack's text and the lessons, or the task alone",
            type=Words(["as-sent", "bare"]),
            default="as-sent",
        ),
        Option(
            "--degenerate",
            "groups without two different rewards: leave out, or keep and flag [drop; jsonl: flag]",
            type=Words(["drop", "flag"]),
        ),
        Option("--phase", "which groups; eval: those held out", type=Words(["train", "eval", "all"]), default="train"),
        Option("--min-gap", "trl-dpo: least difference of rewards [0]", type=_NUMBER(least=0)),
        Option("--pairs", "trl-dpo: most pairs out of one group [1]", type=_WHOLE(least=1)),
        Option("--min-reward", "trl-sft: least reward; trl-kto: desirable from this reward on", type=_NUMBER()),
        *_task,
    ),
    "packs": Commands("tfgrpo packs", "stamp, verify or render prompt packs", _PACKS),
    "report": Command("attempts.report:report", "write a run's report again from its files", Argument("run", _RUN), *_task),
    "verify": Command(
        "runs:verify",
        "check all files of a task, or of one run and its task: checksums, and what each says of the others",
        Argument("name", f"{_RUN}; or a task", metavar="RUN|TASK"),
        *_own_packs,
        epilog="Exit codes: 0 all is well; 1 with a list of what is damaged, missing or changed; 2 an unknown name.",
    ),
    "show": Command(
        "attempts.show:show",
        "look at attempts: the items of a run, the lowest first, or one with all that each attempt at it did",
        Argument("run", _RUN),
        Argument("item", "an item's id or its beginning", required=False),
        flag("--all", "every item, not only the 50 lowest", name="every"),
        *_task,
    ),
    "compare": Command(
        "attempts.compare:compare",
        "compare two runs item by item, what got worse first: means, paired difference with interval, items only in one",
        Argument("before", f"{_RUN}; alone, it is compared with the run before it", metavar="RUN"),
        Argument("after", "the later one", required=False, metavar="[RUN]"),
        *_task,
    ),
    "grade": _with_settings(
        "attempts.grade:grade",
        "grade completions offline, by the graders of a data mix or the rewarders of a pipeline: parts, reasons",
        Argument("config", "a data mix, or a pipeline by file or name"),
        Argument("completions", "a .jsonl file of lines with sample_id (or item_id, id) and completion (or output)"),
        Option("--to", "also write a line for each completion, with reward and parts, into this .jsonl file", metavar="FILE"),
        flag("--force", "replace that file"),
        Option("--grader-timeout", "data mix: seconds that a batch may take a grader [45]", type=_NUMBER(above=0), metavar="S"),
        _judging,
        only=("dataset", "eval_dataset", "model", "base_url", "dry_run", "max_usd", "max_tokens", "max_calls"),
        epilog="The settings are for a pipeline. Spends nothing, unless there is a judge, which asks the pipeline's model "
        "within its budget. Exit codes: 0; 1 nothing could be graded; 2 configuration, lines or ids; 3 the budget was spent "
        "before all was graded.",
    ),
    "runs": Command(
        "runs:runs",
        "list the runs that there are, newest first",
        Option("--since", "only runs since then: 1d, 26h, 7d, 2026-11-30", metavar="AGE|DATE"),
        *_task,
        epilog="Without a task, the runs of every task are listed. `unfinished`: in progress, or killed. Exit codes with "
        "--since: 0; 1 a run failed or was killed, or none has ended.",
    ),
    "prune": Command(
        "runs:prune",
        "free the space of old runs that have finished; history, lessons and their evidence stay",
        Option("--keep", "newest runs that stay whole", type=_WHOLE(least=1, most=1_000_000), default=30),
        flag("--dry-run", "list what would be pruned, with its bytes, and change nothing"),
        *_task,
        epilog="A pruned run cannot be resumed, replayed, exported, shown or compared any more. One that is running, or can be "
        "resumed, is not touched. Exit codes: 0; 1 a run could not be pruned.",
    ),
    "select": Command(
        "select:select",
        "best of K: ask several times, grade, print the best answer",
        Option("--prompt", "the prompt; or on standard input", metavar="TEXT"),
        Option("--item", "an item of a dataset instead, with its answer as reference", metavar="FILE#ID"),
        Option(
            "--reference", "the reference to compare with, as text, or after @ the file that holds it", metavar="TEXT|@FILE"
        ),
        Option(
            "--rewarder",
            "what grades; repeatable; absent: those of the pipeline file, or what the stage rewards",
            name="rewarders",
            multiple=True,
            metavar="NAME[=WEIGHT]",
        ),
        _pipeline("a pipeline file, or a shipped one by name [the defaults]"),
        settings="flows.orchestration.request:SelectRequest",
        usage="[--prompt TEXT | --item FILE#ID | < FILE] [OPTIONS]",
        epilog="Exit codes: 0 a candidate was chosen; 1 none could be; 2 configuration; 3 the budget left none.",
    ),
    "gateway": _with_settings(
        "gateway:gateway",
        "serve the lessons in force of a task to live traffic: clients give this address as their base URL",
        Argument("action", "compare: the gain by the outcomes that clients posted", required=False, metavar="[compare]"),
        _pipeline("a pipeline file, or a shipped one by name, for endpoint and packs [the defaults]"),
        _host,
        _port(8400),
        Option(
            "--token-env",
            "variable that holds the token that clients send as their API key; the endpoint's own key is sent on then. "
            "Absent: the clients' own keys are, and only this machine can connect",
            metavar="NAME",
        ),
        Option("--keys", "keys of clients, a line each after a name, read again when it changes", metavar="FILE"),
        Option("--held-out", "share of conversations without lessons", type=_SHARE, metavar="SHARE", default=0),
        Option("--keep", "keep the traffic in this file, as items to learn on once they have answers", metavar="FILE"),
        Option("--keep-mb", "largest size of that file, in MiB", type=_WHOLE(least=1, most=1_000_000), default=100),
        Option("--concurrency", "calls to the endpoint at a time", type=_WHOLE(least=1, most=100_000), default=256),
        only=("task_id", "out", "packs_root", "base_url", "model", "max_usd", "max_tokens", "max_calls"),
        epilog="Ends at Ctrl-C, SIGTERM and SIGHUP, after the calls in flight, at most 30 seconds later; at once at the "
        "second.",
    ),
    "mcp": _with_settings(
        "gateway:mcp",
        "give agents the lessons in force of a task, as an MCP server on standard input and output with the tool lessons()",
        only=("task_id", "out", "packs_root"),
        epilog="For agents that cannot use the gateway; needs `pip install 'tfgrpo[mcp]'`. Ends with its standard input.",
    ),
    "serve-data": Command(
        "serve_data:serve_data",
        "serve samples of a staged data mix over HTTP, and grade completions of them",
        Argument("config", "file with the stages, datasets and graders (YAML)"),
        _host,
        _port(9000),
        flag("--verbose", "log requests, with rewards and completions"),
        Option("--token-env", "variable that holds the bearer token that clients have to send", metavar="NAME"),
        Option("--max-batch", "most items of a request", type=_WHOLE(least=1), default=16_384),
        Option("--max-body-mb", "largest body, in MiB", type=_NUMBER(above=0), default=32),
        Option("--concurrency", "requests graded at a time", type=_WHOLE(least=1), default=256),
        Option("--grader-timeout", "seconds that a batch may take a grader", type=_NUMBER(above=0), metavar="S", default=45),
        _judging,
        Option(
            "--on-failure",
            "when graders fail: answer with 0.0 and an error, or refuse a request that is mostly lost with 503",
            type=Words(["answer", "refuse"]),
            default="answer",
        ),
    ),
    "serve-simulated": Command(
        "serve_data:serve_simulated",
        "serve the SIMULATED model over HTTP",
        _host,
        _port(8001),
        Option("--world", "arithmetic, unlearnable, or your own by module:attr", default="arithmetic"),
        Option("--seed", "seed of the world's replies", type=_WHOLE(least=0), default=0),
        Option("--latency", "seconds every reply takes", type=_NUMBER(least=0), metavar="S", default=0),
    ),
}
TFGRPO: Final = Commands("tfgrpo", "A learning loop for LLM agents that changes no weights.", COMMANDS, "Commands")
