"""The product fills {datetime} when it sends the prompt."""

from rules_text import rules

SYSTEM = "Current time: {datetime}. " + rules  # <- volatile


def request(history, text):
    return [{"role": "system", "content": SYSTEM}, *history, {"role": "user", "content": text}]
