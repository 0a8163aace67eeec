"""Agents as people write them, with what their vendors' pages show and no word of this project.

Started as ``python real_agents.py NAME PROMPT``; each finds its endpoint in the environment and prints its answer.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

SYSTEM = "You are a careful bookkeeper."
MODEL = os.environ.get("AGENT_MODEL", "simulated")


def as_messages(prompt):
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]


def openai_chat_streamed(prompt):
    from openai import OpenAI

    with OpenAI().chat.completions.create(model=MODEL, messages=as_messages(prompt), temperature=0, stream=True) as chunks:
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def openai_azure(prompt):
    from openai import AzureOpenAI

    reply = AzureOpenAI(api_version="2024-10-21").chat.completions.create(
        model=MODEL, messages=as_messages(prompt), temperature=0
    )
    return reply.choices[0].message.content


def openai_responses_streamed(prompt):
    from openai import OpenAI

    with OpenAI().responses.stream(model=MODEL, instructions=SYSTEM, input=prompt, temperature=0) as events:
        events.until_done()
        return events.get_final_response().output_text


def anthropic_messages(prompt):
    from anthropic import Anthropic

    reply = Anthropic().messages.create(
        model=MODEL,
        max_tokens=500,
        system=SYSTEM,
        messages=[{"role": "user", "content": prompt}],
        extra_body={"temperature": 0},
    )
    return reply.content[0].text


def anthropic_streamed(prompt):
    from anthropic import Anthropic

    blocks = [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}]
    with Anthropic().messages.stream(
        model=MODEL,
        max_tokens=500,
        system=blocks,
        messages=[{"role": "user", "content": prompt}],
        extra_body={"temperature": 0},
    ) as stream:
        return stream.get_final_message().content[0].text


def anthropic_token(prompt):
    """As Claude Code signs in: with ``ANTHROPIC_AUTH_TOKEN`` in place of the key."""
    os.environ["ANTHROPIC_AUTH_TOKEN"] = os.environ.pop("ANTHROPIC_API_KEY")
    return anthropic_messages(prompt)


def of_agents_sdk(**more):
    from agents import Agent, ModelSettings

    return Agent(name="bookkeeper", instructions=SYSTEM, model=MODEL, model_settings=ModelSettings(temperature=0), **more)


def agents_sdk_tools(prompt):
    from agents import Runner, function_tool

    return Runner.run_sync(of_agents_sdk(tools=[function_tool(each) for each in bookkeeping()]), prompt).final_output


def agents_sdk_streamed(prompt):
    from agents import Runner

    async def run():
        result = Runner.run_streamed(of_agents_sdk(), prompt)
        async for _ in result.stream_events():
            pass
        return result.final_output

    return asyncio.run(run())


def pydantic_ai_chat_tools(prompt):
    from pydantic_ai import Agent

    agent = Agent(f"openai-chat:{MODEL}", instructions=SYSTEM, model_settings={"temperature": 0}, tools=list(bookkeeping()))
    return agent.run_sync(prompt).output


def pydantic_ai_anthropic_tools(prompt):
    from pydantic_ai import Agent

    agent = Agent(f"anthropic:{MODEL}", system_prompt=SYSTEM, model_settings={"temperature": 0}, tools=list(bookkeeping()))
    return agent.run_sync(prompt).output


def structured(agent, prompt):
    """Return one text of a structured output, which frameworks ask for by a tool that has to be called."""
    from pydantic import BaseModel

    class Worked(BaseModel):
        text: str
        sure: bool

    return agent(Worked, prompt).text


def pydantic_ai_structured(prompt):
    from pydantic_ai import Agent

    def agent(shape, prompt):
        model = f"anthropic:{MODEL}"
        return Agent(model, system_prompt=SYSTEM, output_type=shape, model_settings={"temperature": 0}).run_sync(prompt).output

    return structured(agent, prompt)


def langchain_structured(prompt):
    from langchain_openai import ChatOpenAI

    def agent(shape, prompt):
        model = ChatOpenAI(model=MODEL, temperature=0, top_p=0.9)
        return model.with_structured_output(shape, method="function_calling").invoke([("system", SYSTEM), ("user", prompt)])

    return structured(agent, prompt)


def agents_sdk_hosted(prompt):
    """With a tool that the vendor runs."""
    from agents import Runner, WebSearchTool

    return Runner.run_sync(of_agents_sdk(tools=[WebSearchTool()]), prompt).final_output


def smolagents_calling(prompt):
    from smolagents import OpenAIServerModel, ToolCallingAgent

    model = OpenAIServerModel(MODEL, api_base=os.environ["OPENAI_BASE_URL"], temperature=0)
    return str(ToolCallingAgent(tools=[], model=model, max_steps=2, verbosity_level=0).run(prompt))


def langgraph_tools(prompt):
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    agent = create_agent(ChatOpenAI(model=MODEL, temperature=0), list(bookkeeping()), system_prompt=SYSTEM)
    return agent.invoke({"messages": [("user", prompt)]})["messages"][-1].content


def smolagents_code(prompt):
    from smolagents import CodeAgent, OpenAIServerModel

    model = OpenAIServerModel(MODEL, api_base=os.environ["OPENAI_BASE_URL"], temperature=0)
    return str(CodeAgent(tools=[], model=model, max_steps=1, verbosity_level=0).run(prompt))


def dspy_predict(prompt):
    import dspy

    dspy.configure(lm=dspy.LM(f"openai/{MODEL}", temperature=0, cache=False))
    return dspy.Predict("question -> answer")(question=prompt).answer


def litellm_anthropic(prompt):
    import litellm

    reply = litellm.completion(f"anthropic/{MODEL}", messages=as_messages(prompt), temperature=0, max_tokens=500)
    return reply.choices[0].message.content


def agno(prompt):
    from agno.agent import Agent
    from agno.models.openai import OpenAIChat

    return Agent(model=OpenAIChat(id=MODEL, temperature=0), instructions=SYSTEM, telemetry=False).run(prompt).content


def autogen(prompt):
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    can = dict.fromkeys(("vision", "function_calling", "json_output", "structured_output"), False)
    address = os.environ["OPENAI_BASE_URL"]
    client = OpenAIChatCompletionClient(model=MODEL, base_url=address, model_info={**can, "family": "unknown"})
    agent = AssistantAgent("bookkeeper", model_client=client, system_message=SYSTEM)
    return asyncio.run(agent.run(task=prompt)).messages[-1].content


def haystack(prompt):
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage

    generator = OpenAIChatGenerator(model=MODEL, api_base_url=os.environ["OPENAI_BASE_URL"])
    return generator.run([ChatMessage.from_system(SYSTEM), ChatMessage.from_user(prompt)])["replies"][0].text


def instructor(prompt):
    from instructor import from_openai
    from openai import OpenAI

    def agent(shape, prompt):
        return from_openai(OpenAI()).chat.completions.create(
            model=MODEL, response_model=shape, messages=as_messages(prompt), temperature=0
        )

    return structured(agent, prompt)


def ag2(prompt):
    from ag2 import Agent
    from ag2.config import OpenAIConfig

    agent = Agent("bookkeeper", prompt=SYSTEM, config=OpenAIConfig(model=MODEL, temperature=0))
    return asyncio.run(agent.ask(prompt)).body


def crewai(prompt):
    from crewai import LLM, Agent, Crew, Task

    model = LLM(model=f"openai/{MODEL}", base_url=os.environ["OPENAI_BASE_URL"], temperature=0)
    agent = Agent(role="bookkeeper", goal="Right sums.", backstory=SYSTEM, llm=model)
    return Crew(agents=[agent], tasks=[Task(description=prompt, expected_output="the sum", agent=agent)]).kickoff().raw


def strands(prompt):
    from strands import Agent
    from strands.models.openai import OpenAIModel

    model = OpenAIModel(model_id=MODEL, params={"temperature": 0})
    return str(Agent(model=model, system_prompt=SYSTEM, callback_handler=None)(prompt))


def aider(prompt):
    quiet = ("--no-git", "--no-pretty", "--no-check-update", "--no-analytics", "--no-show-model-warnings")
    model = ("--model", f"openai/{MODEL}", "--edit-format", "ask", "--yes-always")
    return own_program("aider", *model, *quiet, "--message", prompt)


def gptme(prompt):
    words = ("--non-interactive", "--no-confirm", "--no-stream", "-m", f"local/{MODEL}", "--tools", "save")
    return own_program("gptme", *words, prompt)


def own_program(name, *words):
    """Run a program in a home of its own, which is also where it works; return the answers among all that it prints."""
    home = Path(os.environ["AGENT_HOME"], "home")
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        [Path(sys.prefix, "bin", name), *words],
        env={**os.environ, "HOME": str(home)},
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return "\n".join(line for line in done.stdout.splitlines() if line.startswith("Answer: "))


def go_http(prompt):
    """A program of another language, with its own HTTP and nothing of a vendor's."""
    source = Path(__file__).with_name("real_agent.go")
    own = {"GOCACHE": os.environ["AGENT_HOME"], "GOPATH": os.environ["AGENT_HOME"], "GOFLAGS": "-mod=mod"}
    words = [str(Path(sys.prefix, "bin", "go")), "run", str(source), MODEL, SYSTEM, prompt]
    return subprocess.run(words, env={**os.environ, **own}, stdout=subprocess.PIPE, check=True, text=True).stdout


def mcp_tools(prompt):
    """The Agents SDK with the tools of an MCP server that this program starts."""
    from agents import Runner
    from agents.mcp import MCPServerStdio

    async def run():
        async with MCPServerStdio({"command": sys.executable, "args": [__file__, "serve_mcp", ""]}) as server:
            return (await Runner.run(of_agents_sdk(mcp_servers=[server]), prompt)).final_output

    return asyncio.run(run())


def serve_mcp(_):
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("books")
    for each in bookkeeping():
        server.add_tool(each, structured_output=False)
    server.run()


def command_line(*words):
    """Run a program of ``node``'s packages to its end, without its user's login; return what it prints."""
    own = {"HOME": os.environ["AGENT_HOME"]}
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    programs = Path(sys.prefix, "node", "node_modules", ".bin")
    done = subprocess.run(
        [str(programs / words[0]), *words[1:]],
        env={**os.environ, **own, **quiet},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return done.stdout


def javascript(code, prompt):
    """Run a module of JavaScript, which finds its packages from where it is started."""
    asked = {"PROMPT": prompt, "SYSTEM": SYSTEM, "MODEL": MODEL}
    return subprocess.run(
        ["node", "--input-type=module", "--eval", f"const {{PROMPT, SYSTEM, MODEL}} = process.env;\n{code}"],
        env={**os.environ, **asked},
        cwd=Path(sys.prefix, "node"),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout


def javascript_openai_streamed(prompt):
    code = """
    import OpenAI from 'openai';
    const messages = [{role: 'system', content: SYSTEM}, {role: 'user', content: PROMPT}];
    const asked = {model: MODEL, messages, stream: true, temperature: 0};
    let text = '';
    for await (const chunk of await new OpenAI().chat.completions.create(asked))
        text += chunk.choices[0]?.delta?.content ?? '';
    console.log(text);
    """
    return javascript(code, prompt)


def javascript_anthropic_streamed(prompt):
    code = """
    import Anthropic from '@anthropic-ai/sdk';
    const asked = {model: MODEL, max_tokens: 500, system: SYSTEM, messages: [{role: 'user', content: PROMPT}]};
    console.log((await new Anthropic().messages.stream(asked).finalMessage()).content[0].text);
    """
    return javascript(code, prompt)


def vercel_ai_streamed(prompt):
    code = """
    import {streamText} from 'ai';
    import {createOpenAI} from '@ai-sdk/openai';
    const model = createOpenAI({baseURL: process.env.OPENAI_BASE_URL}).chat(MODEL);
    let text = '';
    for await (const piece of streamText({model, system: SYSTEM, prompt: PROMPT, temperature: 0}).textStream) text += piece;
    console.log(text);
    """
    return javascript(code, prompt)


def opencode(prompt):
    """It has its provider from a file, and asks for a title beside."""
    options = {"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "{env:OPENAI_API_KEY}"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {MODEL: {}}}
    config = Path(os.environ["AGENT_HOME"], "opencode.json")
    config.write_text(json.dumps({"provider": {"here": provider}}))
    os.environ |= {"OPENCODE_CONFIG": str(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return command_line("opencode", "run", "--model", f"here/{MODEL}", prompt)


def qwen_code(prompt):
    return command_line("qwen", "--auth-type", "openai", "--model", MODEL, "--yolo", "--prompt", prompt)


QUIET = ("-c", "analytics.enabled=false", "--disable", "plugins", "--ephemeral", "--skip-git-repo-check")


def codex(prompt, *words):
    provider = ("name=here", f"base_url={os.environ['OPENAI_BASE_URL']}", "env_key=OPENAI_API_KEY")
    named = [word for each in provider for word in ("-c", f"model_providers.here.{each}")]
    return command_line("codex", "exec", *QUIET, "-m", MODEL, "-c", "model_provider=here", *named, *words, prompt)


def codex_by_its_own_provider(prompt):
    """It tries a WebSocket first."""
    base_url = f"openai_base_url={os.environ['OPENAI_BASE_URL']}"
    os.environ.setdefault("CODEX_API_KEY", "k")
    return command_line("codex", "exec", *QUIET, "-m", MODEL, "-c", base_url, prompt)


def codex_tools(prompt):
    asked = {"command": sys.executable, "args": [__file__, "serve_mcp", ""], "default_tools_approval_mode": "approve"}
    server = {**asked, "required": True, "startup_timeout_sec": 120}
    named = [word for key, value in server.items() for word in ("-c", f"mcp_servers.books.{key}={json.dumps(value)}")]
    return codex(prompt, *named)


def claude_code(prompt, *words):
    return command_line("claude", "-p", prompt, "--model", MODEL, *words)


def claude_code_tools(prompt):
    os.environ |= {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "120000", "MCP_TIMEOUT": "120000"}
    server = {"command": sys.executable, "args": [__file__, "serve_mcp", ""]}
    config = json.dumps({"mcpServers": {"books": server}})
    return claude_code(prompt, "--mcp-config", config, "--strict-mcp-config", "--allowedTools", "mcp__books")


def hard_wired(prompt):
    """Passes by the gateway: its address is in its code."""
    from openai import OpenAI

    client = OpenAI(base_url=os.environ["AGENT_UPSTREAM"], api_key="k")
    reply = client.chat.completions.create(model=MODEL, messages=as_messages(prompt), temperature=0)
    return reply.choices[0].message.content


def bookkeeping():
    """Tools of the simulated company; any functions would do."""
    sys.path.append(str(Path(__file__).parents[3] / "examples" / "agents"))
    import bookkeeping as tools

    return tools.accounts_of, tools.ledger_entries, tools.exchange_rate, tools.add


if __name__ == "__main__":
    print(globals()[sys.argv[1]](sys.argv[2]))
