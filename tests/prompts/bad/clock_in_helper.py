import datetime as dt

from app_llm import llm

RULES = "Answer only from the handbook. Cite the section. " * 20


def stamp():
    return dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d %H:%M")


def system_prompt():
    header = "## Current Time\n" + stamp() + "\n\n"  # <- volatile
    return header + RULES


def chat(history, user):
    messages = [{"role": "system", "content": system_prompt()}]
    messages.extend(history)
    messages.append({"role": "user", "content": user})
    return llm.chat(messages)
