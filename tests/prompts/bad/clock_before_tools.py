from datetime import datetime

from tools import TOOLS

SYSTEM = "You are an agent that books rooms. Use the tools, and ask before you book anything that costs money."


def step(client, question):
    return client.chat.completions.create(
        model="agent",
        messages=[
            {"role": "system", "content": SYSTEM + "\nThe time is " + datetime.now().strftime("%H:%M")},  # <- volatile
            {"role": "user", "content": question},
        ],
        tools=TOOLS,
    )
