SYSTEM = "You are a support agent."

def build(memory_store, history, user_msg):
    memories = memory_store.search(user_msg)
    system = SYSTEM + "\n\n<memories>\n" + "\n".join(m.text for m in memories) + "\n</memories>"  # <- retrieval
    # the history follows
    return [{"role": "system", "content": system}] + history + [{"role": "user", "content": user_msg}]
