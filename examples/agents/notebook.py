# %%
"""A notebook as a script: learn, look at what was learned, use it. VS Code, PyCharm and jupytext open it cell by cell."""

import tfgrpo


def agent(prompt, chat):
    """Answer in one call; `chat` asks the model of the run."""
    return chat(prompt)


# %% The simulated model answers items that ship. For yours: tfgrpo.learn("items.jsonl", agent=agent, model=…, base_url=…)
result = tfgrpo.learn(agent=agent, dry_run=True, sample_size=44, batch_size=22, task_id="notebook")
print(result.decision, result.gain, result.usage)

# %%
for lesson in result.lessons:
    print(lesson.polarity, lesson.text)

# %%
print(result.rows()[0])

# %%
print(tfgrpo.prompt("notebook"))
