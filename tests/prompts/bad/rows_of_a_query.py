import json
def system(tools):
    return "You can use the following tools:\n" + json.dumps([t.parameters for t in tools]) + "\nAnswer in JSON."
def messages(db, user):
    rows = db.execute("SELECT name, schema FROM tools").fetchall()
    body = "\n".join(json.dumps(row.schema) for row in rows)  # <- tool-order
    return [{"role": "system", "content": "Tools:\n" + body + "\nUse one of them at a time, and explain to the user what you did with it and why."}, {"role": "user", "content": user}]
