"""The command line: every command with its help, arguments, options, and the function that gets them.

A function is imported when its command is called, and its parameters are named like the options here. ``place``, ``settings``
and ``packs_root`` are made of the options of a task, of the settings and of a directory of packs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from click import Parameter

from tfgrpo.flows.console.parsing import Command, Commands, NumberParameter, Option, Words, argument, flag, option
from tfgrpo.pipelines.settings.pipeline_file import shipped_pipelines

_RUN: Final = "run id or its beginning, directory of a run, or latest for the newest of the task"
_DEFAULTS: Final = "Defaults hold where neither the pipeline file nor the variable in parentheses sets a value."
_WHOLE, _NUMBER = partial(NumberParameter, int), partial(NumberParameter, float)
_SHARE: Final = _NUMBER(least=0, most=1)

_task = (
    option("--out", section="Task", metavar="DIR", help="directory of the tasks [out] (TFGRPO_OUT)"),
    option("--task-id", section="Task", metavar="TASK", help="name of the task [the one used last] (TFGRPO_TASK_ID)"),
)
_packs = partial(option, "--packs-root", section="Task", metavar="DIR")
_own_packs = (*_task, _packs(help="directory of your own packs, besides those that ship (TFGRPO_PACKS_ROOT)"))
_other_packs = _packs(help="directory of your own packs, instead of those that ship (TFGRPO_PACKS_ROOT)")
_set = partial(option, "--set", name="assignments", multiple=True, metavar="KEY=VALUE")
_pipeline = partial(option, "--pipeline", metavar="P")
_planned = _pipeline(
    name="planned",
    help=f"a pipeline file, or by name: {', '.join(shipped_pipelines())} [general for data that are named, else "
    "tfgrpo-learning]",
)
_judging = _pipeline(help="data mix: a pipeline file, or a shipped one by name, whose model its judges ask, within its budget")
_run_id = option("--run-id", metavar="NAME", help="name of the run; made from the time when absent")
_host = option("--host", default="127.0.0.1", metavar="TEXT", help="address to bind")
_with_settings = partial(Command, settings="flows.orchestration.request:RunRequest")
_by = option("--by", metavar="NAME", help="who decides [the login name]")
_why = option("--why", metavar="TEXT", help="the reason, required")
_id = argument("name", metavar="ID", help="an experience id or its beginning")


def _port(default: int) -> Option:
    return option("--port", type=_WHOLE(least=0, most=65_535), default=default, help="port, 0 for any free one")


def _of_lessons(function: str, help: str, *params: Parameter, module: str = "experiences") -> Command:  # noqa: A002 - as of a command
    return Command(f"lessons.{module}:{function}", help, *params, *_own_packs)


_LESSONS: Final[Mapping[str, Command]] = {
    "list": _of_lessons(
        "list_lessons",
        "list the lessons in force, or every record: state, effect, evidence",
        flag("--all", name="every", help="every record, not only the lessons in force"),
    ),
    "show": _of_lessons(
        "show",
        "print whole records",
        argument("names", nargs=-1, required=True, metavar="ID...", help="experience ids, or their beginnings"),
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
        argument("name", metavar="TO", help="a run id, the number of a change in `tfgrpo history`, or none"),
        option("--why", metavar="TEXT", help="the reason"),
        _by,
    ),
    "export": _of_lessons(
        "export",
        "print the lessons in force in a form that other agents read",
        option("--to", type=Words("tasks.exports.lessons:LESSON_FORMS"), help="form of the export [text]"),
    ),
    "import": _of_lessons(
        "import_lessons",
        "show the lessons that another task exported, and store them after review",
        argument("file", help="a file of `tfgrpo experiences export --to json`"),
        option("--pack", metavar="ID", help="pack to stamp the lessons for [the task's own, else the file's]"),
        option("--reviewed-by", metavar="NAME", help="store the lessons, which this person has read"),
        flag("--in-force", name="now", help="also put them into force at once, until the evidence speaks against them"),
    ),
    "measure": _of_lessons(
        "measure",
        "measure the effects of lessons with the settings of the task's newest run",
        argument(
            "names",
            nargs=-1,
            metavar="[ID]...",
            help="experience ids, or their beginnings; without any those on trial and in force",
        ),
        option("--rollouts", type=_WHOLE(least=6, most=1_000_000), default=600, help="attempts"),
        option(
            "--control",
            type=Words("flows.orchestration.request:Control"),
            help="compare the lessons in force with a control (`same`: themselves), in place of measuring lessons",
        ),
        _set(help="a setting that a resumed run may change, such as budget.max_usd"),
        module="measure",
    ),
}
_PACKS: Final[Mapping[str, Command]] = {
    "stamp": Command(
        "packs:stamp", "stamp a pack after editing it", argument("pack", help="id or directory of a pack"), _other_packs
    ),
    "verify": Command(
        "packs:verify",
        "check one pack, or all",
        argument("pack", required=False, help="id or domain of a pack; all without it"),
        _other_packs,
    ),
    "render": Command(
        "packs:render",
        "print the text of a pack as an actor gets it",
        argument("pack", help="id or domain of a pack"),
        option("--task-id", section="Task", metavar="TASK", help="with the lessons in force of this task"),
        _task[0],
        _other_packs,
    ),
}
COMMANDS: Final[Mapping[str, Command | Commands]] = {
    "init": Command(
        "init:init",
        "write a pipeline file for data of your own: asks for data, endpoint and model, and checks all of it",
        argument("data", required=False, help="a dataset: .jsonl, .json, .csv, .tsv or .parquet file, a folder, hf:name"),
        option("--base-url", metavar="URL", help="the endpoint, OpenAI-compatible (OPENAI_BASE_URL)"),
        option("--model", metavar="NAME", help="the model there (TFGRPO_MODEL)"),
        option("--id", metavar="COLUMN", help="the column of the ids [by its name; rows are numbered without one]"),
        option("--prompt", metavar="COLUMN", help='the column of the prompts, or "{question} A) {A} B) {B}" [by its name]'),
        option("--answer", metavar="COLUMN", help="the column of the reference answers [by its name]"),
        _pipeline(default="tfgrpo.yaml", help="the pipeline file to write, once all checks pass"),
        flag("--yes", help="ask nothing: take what the options, the environment and the data say"),
        flag("--force", help="replace that file"),
        epilog="Asks only at a terminal. Spends nothing.",
    ),
    "run": _with_settings(
        "run:run",
        "learn: cohorts, groups, lessons, held-out sweep, decision",
        _planned,
        _run_id,
        option("--resume", metavar="RUN", help="continue a run, or the latest; no answered call is sent again"),
        flag("--pay-again", help="with --resume: also pay again for the answered calls that a damaged journal has lost"),
        option("--replay", metavar="RUN", help="repeat a run, or the latest, from its journal, into another store"),
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
        flag("--ping", help="ask each model for one token, which costs a little, and name the setting that mends each refusal"),
        epilog=_DEFAULTS,
    ),
    "config": _with_settings("config:config", "show every setting and where its value came from", _planned, epilog=_DEFAULTS),
    "deploy": Command(
        "deploy:deploy",
        "set a Prefect server up for nightly runs: work pool, deployments, schedule; check each",
        option("--notify", metavar="BLOCK", help="also apply the automations of ops/, which notify by this notification block"),
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
        argument("run", help=f"{_RUN}, or a .jsonl file of groups"),
        option("--to", type=Words("tasks.exports.choosing:TARGETS"), help="form of the export, required"),
        option(
            "--file", metavar="FILE", help="file to write [out/TASK/exports/RUN-TARGET.jsonl; --to jsonl: RUN-groups.jsonl]"
        ),
        option(
            "--prompt",
            type=Words(["as-sent", "bare"]),
            default="as-sent",
            help="prompts with the pack's text and the lessons, or the task alone",
        ),
        option(
            "--degenerate",
            type=Words(["drop", "flag"]),
            help="groups without two different rewards: leave out, or keep and flag [drop; jsonl: flag]",
        ),
        option("--phase", type=Words(["train", "eval", "all"]), default="train", help="which groups; eval: those held out"),
        option("--min-gap", type=_NUMBER(least=0), help="trl-dpo: least difference of rewards [0]"),
        option("--pairs", type=_WHOLE(least=1), help="trl-dpo: most pairs out of one group [1]"),
        option("--min-reward", type=_NUMBER(), help="trl-sft: least reward; trl-kto: desirable from this reward on"),
        *_task,
    ),
    "packs": Commands("tfgrpo packs", "stamp, verify or render prompt packs", _PACKS),
    "report": Command(
        "attempts.report:report", "write a run's report again from its files", argument("run", help=_RUN), *_task
    ),
    "verify": Command(
        "runs:verify",
        "check all files of a task, or of one run and its task: checksums, and what each says of the others",
        argument("name", metavar="RUN|TASK", help=f"{_RUN}; or a task"),
        *_own_packs,
        epilog="Exit codes: 0 all is well; 1 with a list of what is damaged, missing or changed; 2 an unknown name.",
    ),
    "show": Command(
        "attempts.show:show",
        "look at attempts: the items of a run, the lowest first, or one with all that each attempt at it did",
        argument("run", help=_RUN),
        argument("item", required=False, help="an item's id or its beginning"),
        flag("--all", name="every", help="every item, not only the 50 lowest"),
        *_task,
    ),
    "compare": Command(
        "attempts.compare:compare",
        "compare two runs item by item, what got worse first: means, paired difference with interval, items only in one",
        argument("before", metavar="RUN", help=f"{_RUN}; alone, it is compared with the run before it"),
        argument("after", required=False, metavar="[RUN]", help="the later one"),
        *_task,
    ),
    "grade": _with_settings(
        "attempts.grade:grade",
        "grade completions offline, by the graders of a data mix or the rewarders of a pipeline: parts, reasons",
        argument("config", help="a data mix, or a pipeline by file or name"),
        argument("completions", help="a .jsonl file of lines with sample_id (or item_id, id) and completion (or output)"),
        option(
            "--to", metavar="FILE", help="also write a line for each completion, with reward and parts, into this .jsonl file"
        ),
        flag("--force", help="replace that file"),
        option(
            "--grader-timeout", type=_NUMBER(above=0), metavar="S", help="data mix: seconds that a batch may take a grader [45]"
        ),
        _judging,
        only=("dataset", "eval_dataset", "model", "base_url", "dry_run", "max_usd", "max_tokens", "max_calls"),
        epilog="The settings are for a pipeline. Spends nothing, unless there is a judge, which asks the pipeline's model "
        "within its budget. Exit codes: 0; 1 nothing could be graded; 2 configuration, lines or ids; 3 the budget was spent "
        "before all was graded.",
    ),
    "runs": Command(
        "runs:runs",
        "list the runs that there are, newest first",
        option("--since", metavar="AGE|DATE", help="only runs since then: 1d, 26h, 7d, 2026-11-30"),
        *_task,
        epilog="Without a task, the runs of every task are listed. `unfinished`: in progress, or killed. Exit codes with "
        "--since: 0; 1 a run failed or was killed, or none has ended.",
    ),
    "prune": Command(
        "runs:prune",
        "free the space of old runs that have finished; history, lessons and their evidence stay",
        option("--keep", type=_WHOLE(least=1, most=1_000_000), default=30, help="newest runs that stay whole"),
        flag("--dry-run", help="list what would be pruned, with its bytes, and change nothing"),
        *_task,
        epilog="A pruned run cannot be resumed, replayed, exported, shown or compared any more. One that is running, or can be "
        "resumed, is not touched. Exit codes: 0; 1 a run could not be pruned.",
    ),
    "select": Command(
        "select:select",
        "best of K: ask several times, grade, print the best answer",
        option("--prompt", metavar="TEXT", help="the prompt; or on standard input"),
        option("--item", metavar="FILE#ID", help="an item of a dataset instead, with its answer as reference"),
        option(
            "--reference",
            metavar="TEXT|@FILE",
            help="the reference to compare with, as text, or after @ the file that holds it",
        ),
        option(
            "--rewarder",
            name="rewarders",
            multiple=True,
            metavar="NAME[=WEIGHT]",
            help="what grades; repeatable; absent: those of the pipeline file, or what the stage rewards",
        ),
        _pipeline(help="a pipeline file, or a shipped one by name [the defaults]"),
        settings="flows.orchestration.request:SelectRequest",
        usage="[--prompt TEXT | --item FILE#ID | < FILE] [OPTIONS]",
        epilog="Exit codes: 0 a candidate was chosen; 1 none could be; 2 configuration; 3 the budget left none.",
    ),
    "gateway": _with_settings(
        "gateway:gateway",
        "serve the lessons in force of a task to live traffic: clients give this address as their base URL",
        argument("action", required=False, metavar="[compare]", help="compare: the gain by the outcomes that clients posted"),
        _pipeline(help="a pipeline file, or a shipped one by name, for endpoint and packs [the defaults]"),
        _host,
        _port(8400),
        option(
            "--token-env",
            metavar="NAME",
            help="variable that holds the token that clients send as their API key; the endpoint's own key is sent on then. "
            "Absent: the clients' own keys are, and only this machine can connect",
        ),
        option("--keys", metavar="FILE", help="keys of clients, a line each after a name, read again when it changes"),
        option("--held-out", type=_SHARE, metavar="SHARE", default=0, help="share of conversations without lessons"),
        option("--keep", metavar="FILE", help="keep the traffic in this file, as items to learn on once they have answers"),
        option("--keep-mb", type=_WHOLE(least=1, most=1_000_000), default=100, help="largest size of that file, in MiB"),
        option("--concurrency", type=_WHOLE(least=1, most=100_000), default=256, help="calls to the endpoint at a time"),
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
        argument("config", help="file with the stages, datasets and graders (YAML)"),
        _host,
        _port(9000),
        flag("--verbose", help="log requests, with rewards and completions"),
        option("--token-env", metavar="NAME", help="variable that holds the bearer token that clients have to send"),
        option("--max-batch", type=_WHOLE(least=1), default=16_384, help="most items of a request"),
        option("--max-body-mb", type=_NUMBER(above=0), default=32, help="largest body, in MiB"),
        option("--concurrency", type=_WHOLE(least=1), default=256, help="requests graded at a time"),
        option(
            "--grader-timeout", type=_NUMBER(above=0), metavar="S", default=45, help="seconds that a batch may take a grader"
        ),
        _judging,
        option(
            "--on-failure",
            type=Words(["answer", "refuse"]),
            default="answer",
            help="when graders fail: answer with 0.0 and an error, or refuse a request that is mostly lost with 503",
        ),
    ),
    "serve-simulated": Command(
        "serve_data:serve_simulated",
        "serve the SIMULATED model over HTTP",
        _host,
        _port(8001),
        option("--world", default="arithmetic", help="arithmetic, unlearnable, or your own by module:attr"),
        option("--seed", type=_WHOLE(least=0), default=0, help="seed of the world's replies"),
        option("--latency", type=_NUMBER(least=0), metavar="S", default=0, help="seconds every reply takes"),
    ),
}
TFGRPO: Final = Commands("tfgrpo", "A learning loop for LLM agents that changes no weights.", COMMANDS, "Commands")
