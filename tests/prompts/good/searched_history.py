REWRITE = "Rewrite the last question so that it can be searched for. Keep names, dates and numbers as they are. " * 4


def context_of(question, messages):
    recent = messages[-10:] if len(messages) > 10 else messages
    text = " ".join(message.content for message in recent if message.role == "user")
    return {"query": text + " " + question}


def rewrite(client, question, messages):
    searched = context_of(question, messages)
    return client.chat.completions.create(
        model="m",
        messages=[
            {"role": "system", "content": REWRITE},
            {"role": "user", "content": searched["query"]},
        ],
    )
