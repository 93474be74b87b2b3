KEEP = 5


def compact(messages):
    for message in messages[:-KEEP]:
        if message["role"] == "tool":
            message["content"] = "[old tool result cleared]"  # <- history
    return messages


def step(client, messages):
    return client.chat.completions.create(model="agent", messages=compact(messages))
