import random

SYSTEM = "You help people who rent bicycles in a hilly town. Say which station has bicycles, and how steep the way is. " * 3
TOOLS = [
    {"type": "function", "function": {"name": "stations", "parameters": {}}},
    {"type": "function", "function": {"name": "route", "parameters": {}}},
]


def asked(client, question):
    tools = TOOLS[:]
    random.shuffle(tools)  # <- tool-order
    return client.chat.completions.create(
        model="m",
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
        tools=tools,
    )
