import uuid


def ask(client, messages):
    return client.chat.completions.create(
        model="m",
        messages=messages,
        extra_body={"cache_salt": uuid.uuid4().hex},  # <- cache-salt
    )
