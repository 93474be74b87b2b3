def ask(client, history, text):
    history.append({"role": "user", "content": text})
    if len(history) > 40:
        history = history[2:]  # <- history
    return client.chat.completions.create(model="m", messages=history)
