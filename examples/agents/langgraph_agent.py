"""An agent with tools of its own, with LangGraph, built by LangChain."""

import bookkeeping  # functions of a company that does not exist; take yours
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

TOOLS = [bookkeeping.accounts_of, bookkeeping.ledger_entries, bookkeeping.exchange_rate, bookkeeping.add]


async def agent(prompt, temperature, base_url, api_key):
    """Work on one question until there is an answer."""
    model = ChatOpenAI(model="gpt-4.1-mini", base_url=base_url, api_key=api_key, temperature=temperature)
    graph = create_agent(model, TOOLS, system_prompt="You answer questions about the books.")
    return (await graph.ainvoke({"messages": [("user", prompt)]}))["messages"][-1].content
