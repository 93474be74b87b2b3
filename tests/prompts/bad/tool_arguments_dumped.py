import json


def replay(rows):
    messages = [{"role": "system", "content": "You plan trips."}]
    for row in rows:
        tool_call = row.tool_call
        messages.append({"role": "assistant", "content": json.dumps(tool_call.args)})  # <- tool-order
        messages.append({"role": "tool", "content": row.output})
    messages.append({"role": "user", "content": "Go on."})
    return messages
