"""An agent with tools of its own, with Pydantic AI."""

import bookkeeping  # functions of a company that does not exist; take yours
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

bookkeeper = Agent(
    instructions="You answer questions about the books.",
    tools=[bookkeeping.accounts_of, bookkeeping.ledger_entries, bookkeeping.exchange_rate, bookkeeping.add],
)


async def agent(prompt, temperature, base_url, api_key):
    """Work on one question until there is an answer."""
    model = OpenAIResponsesModel("gpt-4.1-mini", provider=OpenAIProvider(base_url=base_url, api_key=api_key))
    return (await bookkeeper.run(prompt, model=model, model_settings={"temperature": temperature})).output
