"""The tools actor's work done by agents that call the endpoint themselves: by hand, and with frameworks."""

from __future__ import annotations

import functools
import json

import httpx
from pydantic_core import to_json

from tfgrpo.tasks.tools import bookkeeping

FUNCTIONS = (bookkeeping.accounts_of, bookkeeping.ledger_entries, bookkeeping.exchange_rate, bookkeeping.add)


async def by_hand(prompt, temperature, base_url, api_key):
    """Chat completions over HTTP, without any library for them."""
    known = {function.__name__: function for function in FUNCTIONS}
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in known]
    messages = [{"role": "user", "content": prompt}]
    headers = {"authorization": f"Bearer {api_key}"}
    async with httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False, timeout=60) as client:
        while True:
            asked = {"model": "any", "messages": messages, "temperature": temperature, "tools": tools}
            reply = await client.post("/chat/completions", json=asked)
            message = reply.json()["choices"][0]["message"]
            if not message.get("tool_calls"):
                return message["content"]
            messages.append(message)
            for call in message["tool_calls"]:
                result = known[call["function"]["name"]](**json.loads(call["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": to_json(result).decode()})


def in_json(function):
    """Return the function with its result as the tools actor writes it."""

    @functools.wraps(function)
    def around(*args, **kwargs):
        return to_json(function(*args, **kwargs)).decode()

    around.__annotations__ = {**function.__annotations__, "return": str}
    return around


async def sdk_tools(prompt, temperature, base_url, api_key):
    """The OpenAI Agents SDK."""
    from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        agent = Agent(
            name="bookkeeper",
            model=OpenAIResponsesModel("any", client),
            model_settings=ModelSettings(temperature=temperature),
            tools=[function_tool(in_json(each)) for each in FUNCTIONS],
        )
        return (await Runner.run(agent, prompt, run_config=RunConfig(tracing_disabled=True))).final_output


async def pydantic_tools(prompt, temperature, base_url, api_key):
    """Pydantic AI over chat completions."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("any", provider=OpenAIProvider(base_url=base_url, api_key=api_key))
    agent = Agent(model, tools=[in_json(each) for each in FUNCTIONS], model_settings={"temperature": temperature})
    return (await agent.run(prompt)).output
