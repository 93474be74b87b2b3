from datetime import datetime
from zoneinfo import ZoneInfo

SYSTEM = """You are a scheduling assistant. Propose free slots, confirm them, and write invitations.
Never book over an existing appointment. Ask for the time zone when it is not clear. The current time is given
at the beginning of the last message of the user."""


def build_messages(history: list[dict], question: str, zone: str) -> list[dict]:
    stamp = datetime.now(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")
    return [
        {"role": "system", "content": SYSTEM},
        *history,
        {"role": "user", "content": f"[now {stamp}]\n{question}"},
    ]
