"""A date costs one miss a day: an info at most."""

from datetime import date

GUIDE = """Answer questions about opening hours, prices and events of the zoo. Use the calendar below.
If an event was yesterday, say so. If you do not know the answer, give the telephone number of the ticket office."""


def system_prompt() -> str:
    return f"Today is {date.today().strftime('%A, %d %B %Y')}.\n{GUIDE}"


def request(question: str) -> list[dict]:
    return [{"role": "system", "content": system_prompt()}, {"role": "user", "content": question}]
