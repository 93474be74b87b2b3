import time
from functools import lru_cache


@lru_cache(maxsize=1)
def system_prompt() -> str:
    built = time.strftime("%H:%M:%S")
    return f"(built {built})\n" + open("prompts/system.md").read()


def request(question):
    return [{"role": "system", "content": system_prompt()}, {"role": "user", "content": question}]
