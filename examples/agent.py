"""An agent of your own: a function that takes what it declares and returns its answer.

It may declare ``prompt``, ``system``, ``item``, ``temperature``, ``seed`` and ``chat``; ``chat`` asks the run's model, with the
pack's text and its lessons as system message, and every call is measured, journalled and counted against the budget.
"""

import tfgrpo


async def agent(prompt: str, chat: tfgrpo.Chat) -> str:
    """Answer, look at the answer once more, and answer again; the second answer counts."""
    draft = await chat(prompt)
    return await chat(f"{prompt}\n\nA first answer was:\n{draft}\n\nCheck it and answer again.")
