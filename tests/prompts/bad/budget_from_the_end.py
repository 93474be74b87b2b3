def fit(messages, budget, count):
    kept, used = [], 0
    for m in reversed(messages):  # <- history
        used += count(m["content"])
        if used > budget:
            break
        kept.insert(0, m)
    return kept
def ask(client, messages, count):
    return client.chat.completions.create(model="m", messages=fit(messages, 4000, count))
