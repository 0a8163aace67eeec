"""An agent with tools of its own, with the OpenAI Agents SDK, which speaks the Responses API."""

import bookkeeping  # functions of a company that does not exist; take yours
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

TOOLS = [
    function_tool(each)
    for each in (bookkeeping.accounts_of, bookkeeping.ledger_entries, bookkeeping.exchange_rate, bookkeeping.add)
]


async def agent(prompt, temperature, base_url, api_key):
    """Work on one question until there is an answer."""
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        bookkeeper = Agent(
            name="bookkeeper",
            instructions="You answer questions about the books.",
            model=OpenAIResponsesModel("gpt-4.1-mini", client),
            model_settings=ModelSettings(temperature=temperature),
            tools=TOOLS,
        )
        return (await Runner.run(bookkeeper, prompt, run_config=RunConfig(tracing_disabled=True))).final_output
