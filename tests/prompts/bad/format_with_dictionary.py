from datetime import datetime
PROMPT = "Now it is {now}. You are a travel agent for {company}. Always answer politely and give at most three options to the customer."

def build(history, question):
    ctx = {"now": datetime.now().strftime("%d/%m/%Y %H:%M"), "company": "ACME"}  # <- volatile
    system = PROMPT.format(**ctx)
    messages = [dict(role="system", content=system)]
    messages.extend(history)
    messages.append(dict(role="user", content=question))
    return messages
