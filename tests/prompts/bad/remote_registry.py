import requests

def tools_for(session):
    return requests.get("http://registry/tools").json()  # <- tool-order

def run(client, messages, session):
    return client.chat.completions.create(model="m", messages=messages, tools=tools_for(session))
