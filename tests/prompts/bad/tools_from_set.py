SEARCH = {"type": "function", "function": {"name": "search"}}
FETCH = {"type": "function", "function": {"name": "fetch"}}
BY_NAME = {"search": SEARCH, "fetch": FETCH}


def request(messages, wanted):
    enabled = set(wanted) | {"search"}
    names = {name for name in enabled if name in BY_NAME}  # <- tool-order
    return {
        "model": "agent",
        "messages": messages,
        "tools": [BY_NAME[name] for name in names],
    }
