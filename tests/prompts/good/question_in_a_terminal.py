from datetime import datetime

from rich.prompt import Prompt

HELP = "Type the number of a station, or a name, or nothing at all to see the list of stations near the market. " * 4


def ask_station():
    prompt = f"[{datetime.now():%H:%M}] {HELP}"
    return Prompt.ask(prompt)
