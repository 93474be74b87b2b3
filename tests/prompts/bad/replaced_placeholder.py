from datetime import datetime
SYSTEM_PROMPT = """Time: {{NOW}}
You are a bot that answers questions about trains. You know all stations, you never invent a connection and you are short."""

def make_prompt():
    return SYSTEM_PROMPT.replace("{{NOW}}", datetime.now().isoformat())  # <- volatile

def ask(client, q):
    return client.chat.completions.create(model="m", messages=[{"role": "system", "content": make_prompt()}, {"role": "user", "content": q}])
