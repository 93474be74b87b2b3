def build(history, max_messages, system, question):
    start = max(0, len(history) - max_messages)
    recent = history[start:]  # <- history
    return [{"role": "system", "content": system}, *recent, {"role": "user", "content": question}]
