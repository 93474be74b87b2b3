from vectors import index


def auto_inject(messages, user_msg):
    found = index.search(user_msg, k=5)
    messages[0]["content"] += "\n\nRelevant:\n" + "\n".join(hit.text for hit in found)  # <- retrieval
    return messages
