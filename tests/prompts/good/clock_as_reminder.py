from datetime import datetime


def reminder(now: datetime) -> str:
    return f"<reminder>The user's local time is {now.isoformat(timespec='seconds')}.</reminder>"


def request(system_static: str, history: list, text: str) -> list:
    messages = [{"role": "system", "content": system_static}]
    messages += history
    messages.append({"role": "user", "content": text + "\n\n" + reminder(datetime.now())})
    return messages
