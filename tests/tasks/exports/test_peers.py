"""Exports are acted on by the programs they are for: TRL trains, verl reads. Run by ``make test-peers``.

None of these packages is in the test extra; where one is absent, its tests are skipped and say so.
"""

import importlib
from typing import Any

import pytest

from tests.support.agents.exports import export, group
from tfgrpo.tasks.exports.choosing import ExportOptions, ExportReport
from tfgrpo.tasks.exports.exporting import export_groups

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]


def peer(name: str) -> Any:
    """The module, or a skip that says what is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} cannot be imported ({error}); `make test-peers` installs it where the index has it")


# --- TRL


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Makes a language model of two layers, and a tokenizer whose every token is a character; nothing is downloaded.

    It is loaded from a directory, because some trainers load it once more as the reference.
    """
    transformers, tokenizers = peer("transformers"), peer("tokenizers")
    letters = [chr(code) for code in range(32, 127)] + ["\n", "<pad>", "<eos>", "?unk"]
    core = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({letter: number for number, letter in enumerate(letters)}, unk_token="?unk")
    )
    core.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")
    tokenizer.chat_template = (
        "{% for message in messages %}[{{ message.role }}]{{ message.content or '' }}\n{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )

    def made() -> tuple[Any, Any]:
        config = transformers.GPT2Config(
            vocab_size=len(letters), n_positions=256, n_embd=16, n_layer=2, n_head=2,
            pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=tokenizer.eos_token_id,
        )  # fmt: skip
        home = str(tmp_path_factory.mktemp("model"))
        transformers.GPT2LMHeadModel(config).save_pretrained(home)
        return transformers.AutoModelForCausalLM.from_pretrained(home), tokenizer

    return made


def recorded_reward(prompts: Any, completions: Any, recorded_completions: Any, recorded_rewards: Any, **_: Any) -> list[float]:
    """As on the page of exports, with 0 for an answer that no attempt gave: a random model gives no other."""
    found = []
    for completion, known, worth in zip(completions, recorded_completions, recorded_rewards, strict=True):
        texts = [turns[-1]["content"] for turns in known]
        said = completion[-1]["content"]
        found.append(worth[texts.index(said)] if said in texts else 0.0)
    return found


@pytest.mark.parametrize("target", ["trl-sft", "trl-dpo", "trl-kto", "trl-grpo"])
def test_a_trl_trainer_takes_a_step_on_an_exported_set(target, tiny, tmp_path):
    trl, datasets = peer("trl"), peer("datasets")
    peer("torch")
    groups = [group(1.0, 0.0, 0.5, name=f"g{number}", metadata={"answer": str(number)}) for number in range(4)]
    export(groups, target, tmp_path / "set.jsonl")
    rows = datasets.load_dataset(
        "json", data_files=str(tmp_path / "set.jsonl"), cache_dir=str(tmp_path / "cache"), split="train"
    )
    kind = target.removeprefix("trl-").upper()
    config, trainer = trainer_of(trl, kind)
    common: dict[str, Any] = {
        "output_dir": str(tmp_path / "out"), "max_steps": 1, "per_device_train_batch_size": 2, "report_to": "none",
        "use_cpu": True, "save_strategy": "no", "disable_tqdm": True, "logging_steps": 1, "bf16": False,
    }  # fmt: skip
    more: dict[str, Any] = {}
    if kind == "GRPO":
        common |= {"num_generations": 2, "max_completion_length": 8}
        more["reward_funcs"] = recorded_reward
    model, tokenizer = tiny()
    made = trainer(model=model, args=config(**common), train_dataset=rows, processing_class=tokenizer, **more)
    assert made.train().global_step == 1


def trainer_of(trl: Any, kind: str) -> tuple[Any, Any]:
    """Config and trainer, which TRL keeps among its experiments for some kinds."""
    names = f"{kind}Config", f"{kind}Trainer"
    home = trl if hasattr(trl, names[0]) else peer(f"trl.experimental.{kind.lower()}")
    return getattr(home, names[0]), getattr(home, names[1])


# --- verl


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_verl_s_loader_reads_an_exported_set_up_to_the_prompts_it_rolls_out(suffix, tiny, tmp_path):
    omegaconf, loading = peer("omegaconf"), peer("verl.utils.dataset.rl_dataset")
    groups = [group(1.0, 0.0, name=f"g{number}", metadata={"answer": str(number)}) for number in range(4)]
    path = tmp_path / f"set.{suffix}"
    # Not ``export`` of the kit, which reads lines back: a Parquet file has none.
    export_groups(groups, path, ExportReport("test", ExportOptions(target="verl")))
    config = omegaconf.OmegaConf.create({"max_prompt_length": 200, "filter_overlong_prompts": True, "truncation": "error"})
    rows = loading.RLHFDataset(data_files=[str(path)], tokenizer=tiny()[1], config=config)
    assert len(rows) == 4
    batch = loading.collate_fn([rows[place] for place in range(4)])
    assert [row["ground_truth"] for row in batch["reward_model"]] == ["0", "1", "2", "3"]
    assert batch["raw_prompt"][0][-1] == {"role": "user", "content": "3 + 4?"}
