def chat(client, history, text, limit):
    history.append({"role": "user", "content": text})
    while count_tokens(history) > limit:
        history.pop(0)  # <- history
    reply = client.chat.completions.create(model="m", messages=history)
    history.append({"role": "assistant", "content": reply.choices[0].message.content})
    return reply


def count_tokens(history):
    return sum(len(message["content"]) // 4 for message in history)
