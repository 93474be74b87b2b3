import json


def system_text(tools):
    lines = [json.dumps(tool.schema) for tool in tools]  # <- tool-order
    return "You can call these tools:\n" + "\n".join(lines) + "\nCall one tool at a time and wait for what it answers."


def build(tools, history):
    return [{"role": "system", "content": system_text(tools)}, *history]
