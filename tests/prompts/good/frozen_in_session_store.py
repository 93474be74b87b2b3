from datetime import datetime

TEXT = "You help employees with questions about travel expenses. Quote the section of the guideline in each answer.\n" * 2


def on_message(session, text, llm):
    if "system" not in session:
        session["system"] = f"Conversation of {datetime.now()}\n" + TEXT
    messages = [{"role": "system", "content": session["system"]}, *session["history"]]
    messages.append({"role": "user", "content": text})
    return llm.chat(messages)
