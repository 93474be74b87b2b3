BASE = {"a", "b"}
def pick(extra):
    return BASE | set(extra)  # <- tool-order

def run(client, messages, extra, catalog):
    names = pick(extra)
    tools = [catalog[n] for n in names]
    return client.chat.completions.create(model="m", messages=messages, tools=tools)
