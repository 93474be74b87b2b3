"""All turns are kept as they were sent; what is too long is cut off at its end."""


def normalise(messages):
    for message in messages:
        message["content"] = message["content"].strip()
    return messages


def fit(messages, limit):
    while sum(len(message["content"]) for message in messages) > limit:
        messages.pop()
    return messages


def ask(client, messages, text):
    messages = normalise(fit([*messages, {"role": "user", "content": text}], 40_000))
    return client.chat.completions.create(model="m", messages=messages)
