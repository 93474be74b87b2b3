def micro_compact(messages, keep=3):
    n = len(messages)
    for i, m in enumerate(messages):
        if m["role"] == "tool" and i < len(messages) - keep:
            m["content"] = "<elided>"  # <- history
    return messages
