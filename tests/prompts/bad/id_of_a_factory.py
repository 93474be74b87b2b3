from dataclasses import dataclass, field
from uuid import uuid4

RULES = "You answer questions about the timetable of a ferry. Name the pier, and warn of high tide when it matters. " * 3


@dataclass
class FerryPrompt:
    persona: str = "You are Mara."
    seen: list = field(default_factory=list)
    request: str = field(default_factory=lambda: uuid4().hex)

    def render(self) -> str:
        return "\n".join([f"Request {self.request}", self.persona, RULES])  # <- volatile


def complete(client, question):
    prompt = FerryPrompt()
    messages = [{"role": "system", "content": prompt.render()}, {"role": "user", "content": question}]
    return client.chat.completions.create(model="m", messages=messages)
