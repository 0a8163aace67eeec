"""What is exported is what the consumers take: their own readers and checks are run on it, as far as they need no GPU.

``datasets`` is in the test extra. TRL itself asks for torch; its checks of datasets do not, so they are installed beside,
without what the package depends on besides.
"""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from tests.support.agents.exports import export, group, logprobs, rollout
from tfgrpo.stores.errors import SettingsError, StoreError
from tfgrpo.tasks.exports.choosing import ExportOptions, ExportReport
from tfgrpo.tasks.exports.exporting import export_groups

TRL = ("trl", "transformers", "tokenizers", "safetensors", "regex")
SETS = ("trl-grpo", "trl-dpo", "trl-kto", "trl-sft")


def turns(name: str, arguments: str, answer: str):
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": name, "content": "7"},
        {"role": "assistant", "content": answer},
    ]


def plain_groups():
    return [group(1.0, 0.0, 0.5, name=f"g{number}", metadata={"answer": str(number)}) for number in range(12)]


def tool_groups():
    tools = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}}}]
    attempts = (
        rollout(0, 1.0, group="t", text=turns("add", '{"left":3}', "7")),
        rollout(1, 0.0, group="t", text=turns("look_up", '{"day":"today"}', "8")),
    )
    return [group(name="t", rollouts=attempts, metadata={"tools": tools})]


@pytest.fixture
def loaded(monkeypatch, tmp_path):
    """Loads a file. The library is imported here: a second of CPU, which only one worker of the tests is to spend."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()

    def load(path: Path):
        kind = "json" if path.suffix == ".jsonl" else "parquet"
        return datasets.load_dataset(kind, data_files=str(path), cache_dir=str(tmp_path / "cache"), split="train")

    return load


@pytest.mark.parametrize("target", [*SETS, "verl", "openrlhf"])
def test_the_datasets_library_loads_every_set_as_it_was_written(target, tmp_path, loaded):
    # verl and OpenRLHF take no conversations with tools.
    groups = [*plain_groups(), *(tool_groups() if target in SETS else [])]
    rows, _ = export(groups, target, tmp_path / "x.jsonl")
    back = loaded(tmp_path / "x.jsonl").to_list()
    assert [{key: value for key, value in row.items() if value is not None} for row in back] == rows


def parquet(groups, path):
    export_groups(groups, path, ExportReport("test", ExportOptions(target="verl")))
    return path


def test_verl_s_parquet_loads_with_the_datasets_library(tmp_path, loaded):
    rollouts = tuple(rollout(index, float(index), logprob=logprobs(-0.5, token_ids=(7,))) for index in range(2))
    plain = [group(1.0, 0.0, name=f"g{number}") for number in range(1_001)]
    rows = loaded(parquet([*plain, group(rollouts=rollouts)], tmp_path / "x.parquet")).to_list()
    assert [row["extra_info"]["index"] for row in rows] == [*range(1_002)]
    # What its loader of prompts and its reward manager look up.
    assert (rows[0]["prompt"][-1], rows[0]["data_source"]) == ({"role": "user", "content": "3 + 4?"}, "t")
    assert rows[0]["reward_model"] == {"style": "rule", "ground_truth": "7"}
    info = rows[0]["extra_info"]
    assert (info["recorded_rewards"], info["recorded_logprobs"]) == ([1.0, 0.0], [])
    assert json.loads(info["recorded_completions"][0]) == [{"role": "assistant", "content": "answer 0"}]
    assert rows[-1]["extra_info"]["recorded_logprobs"] == [[-0.5], [-0.5]]


def test_parquet_refuses_prompts_with_tools_and_names_the_extra_without_its_library(tmp_path, monkeypatch):
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": []}]
    asked = [*turns, {"role": "tool", "tool_call_id": "c", "content": "7"}]
    with pytest.raises(StoreError, match=r"'g' has turns with tools; write a \.jsonl file"):
        parquet([group(1.0, 0.0, state=asked)], tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SettingsError, match=r"tfgrpo\[parquet\]"):
        parquet([group(1.0, 0.0)], tmp_path / "x.parquet")


# --- TRL's own checks


@pytest.fixture(scope="module")
def trl():
    """A directory with TRL and what its module of dataset checks imports: no torch. It goes with the tests, being large."""
    with tempfile.TemporaryDirectory() as home:
        pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile", "-q"]
        line = [*pip, "--no-deps", "--target", home, *TRL]
        done = subprocess.run(line, capture_output=True, text=True, timeout=500, check=False)
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING: Location")]
            reason = "pip cannot install TRL; is a package index reachable?"
            pytest.fail("\n".join([reason, *lines[-15:]]), pytrace=False)
        yield Path(home)


CHECKS = """
import json, sys
from pathlib import Path
import datasets
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from trl.data_utils import (
    apply_chat_template, is_conversational, maybe_extract_prompt, maybe_unpair_preference_dataset, unpair_preference_dataset
)

assert "torch" not in sys.modules
datasets.disable_progress_bars()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"?": 0}, unk_token="?")))
tokenizer.chat_template = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}"
    "{% for message in messages %}<{{ message.role }}>{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}<call>{{ call.function.name }} {{ call.function.arguments | tojson }}</call>"
    "{% endfor %}</{{ message.role }}>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)

def load(name):
    path = Path(sys.argv[1])
    return datasets.load_dataset("json", data_files=str(path / f"{name}.jsonl"), cache_dir=str(path / "c"), split="train")

def templated(row):
    tools = json.loads(row["tools"]) if row.get("tools") else None
    return apply_chat_template({k: v for k, v in row.items() if k not in ("tools", "provenance")}, tokenizer, tools=tools)

out = {}
for name in ("trl-grpo", "trl-dpo", "trl-kto", "trl-sft"):
    rows = load(name)
    assert all(is_conversational(row) for row in rows), name
    out[name] = [templated(row) for row in rows]
dpo = load("trl-dpo")
assert [maybe_extract_prompt(row) for row in dpo] == [row for row in dpo]
unpaired = unpair_preference_dataset(dpo.select_columns(["prompt", "chosen", "rejected"]))
assert set(unpaired.column_names) == {"prompt", "completion", "label"}
assert len(unpaired) == 2 * len(dpo)
kto = load("trl-kto")
assert maybe_unpair_preference_dataset(kto).column_names == kto.column_names
assert kto.features["label"].dtype == "bool"
print(json.dumps(out))
"""


@pytest.mark.slow
def test_trl_s_own_checks_pass_and_its_chat_templates_apply(trl, tmp_path):
    for target in SETS:
        export([*plain_groups(), *tool_groups()], target, tmp_path / f"{target}.jsonl")
    environment = {**os.environ, "PYTHONPATH": str(trl), "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    script = [sys.executable, "-c", textwrap.dedent(CHECKS), str(tmp_path)]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    out = json.loads(done.stdout)
    prompt = "<system>Be careful.</system><user>3 + 4?</user><assistant>"
    assert out["trl-grpo"][0] == {"prompt": prompt}
    assert out["trl-dpo"][0]["chosen"].startswith("answer 0</assistant>")
    assert out["trl-dpo"][0]["rejected"].startswith("answer 1</assistant>")
    assert out["trl-kto"][0]["label"] is True
    last = out["trl-sft"][-1]
    assert last["prompt"].startswith("<tools>[{")
    assert '<call>add {"left": 3}</call>' in last["completion"]
