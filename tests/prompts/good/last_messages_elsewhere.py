"""The last messages are used for a title and for the screen, not for the request."""


def title(client, messages):
    recent = " / ".join(message["content"][:40] for message in messages[-4:])
    return recent[:60]


def ask(client, messages, text):
    messages.append({"role": "user", "content": text})
    reply = client.chat.completions.create(model="m", messages=messages)
    messages.append({"role": "assistant", "content": reply.choices[0].message.content})
    last = messages[-1]
    print(title(client, messages), last["content"], messages[-2:])
    return reply
