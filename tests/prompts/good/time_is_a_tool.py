from datetime import datetime

TOOLS = [{"type": "function", "function": {"name": "now", "description": "The current time", "parameters": {}}}]
SYSTEM = {"role": "system", "content": "You plan meetings. Call the tool now() before you speak about the time."}


def now() -> str:
    return datetime.now().isoformat()


def run(client, messages):
    while True:
        reply = client.chat.completions.create(model="agent", messages=[SYSTEM, *messages], tools=TOOLS)
        message = reply.choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": now()})
