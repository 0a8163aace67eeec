"""An agent with the OpenAI SDK. Only its client is told where to call: the lessons come with its calls."""

from openai import AsyncOpenAI


async def agent(prompt, temperature, base_url, api_key):
    """Answer, look at the answer once more, and answer again."""
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:

        async def ask(text):
            messages = [{"role": "system", "content": "You work carefully."}, {"role": "user", "content": text}]
            reply = await client.chat.completions.create(model="gpt-4.1-mini", messages=messages, temperature=temperature)
            return reply.choices[0].message.content

        draft = await ask(prompt)
        return await ask(f"{prompt}\n\nA first answer was:\n{draft}\n\nCheck it and answer again.")
