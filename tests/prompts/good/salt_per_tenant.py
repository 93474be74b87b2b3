import hashlib


def ask(client, tenant, messages):
    salt = hashlib.sha256(tenant.encode()).hexdigest()
    return client.chat.completions.create(model="m", messages=messages, extra_body={"cache_salt": salt})
