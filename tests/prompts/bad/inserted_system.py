from datetime import datetime


def with_clock(messages):
    messages.insert(0, {"role": "system", "content": f"It is {datetime.utcnow():%Y-%m-%d %H:%M:%S}."})  # <- volatile
    return messages
