import asyncio

PROMPTS = [
    "Explain how the bandwidth of memory limits the speed of decoding, with numbers of one accelerator that you know.",
    "Write a complete implementation of a cache that forgets what was used least recently, with annotations of types.",
]
SCENARIOS = [
    {"prompt": "Explain how the bandwidth of memory limits the speed of decoding, with numbers.", "max_tokens": 256},
    {"prompt": "Write a complete implementation of a cache that forgets what was used least.", "max_tokens": 256},
]


async def one(client, prompt):
    return await client.chat.completions.create(model="m", messages=[{"role": "user", "content": prompt}])


async def main(client, total):
    await asyncio.gather(*[one(client, PROMPTS[index % len(PROMPTS)]) for index in range(total)])
    for scenario in SCENARIOS:
        await client.completions.create(model="m", **scenario)
