"""The clock goes into a template that stands in a constant."""

from django.utils import timezone

TEMPLATE = """\
You are an assistant for community health workers.
It is {current_datetime}.

Always answer in the language of the question. If a dosage is asked for, quote the national guideline and its page.
Never diagnose. If the person may be in danger, say so first and give the emergency number.
"""


class ChatBot:
    def __init__(self, llm):
        self.llm = llm

    def build_messages(self, history, text):
        now = timezone.now()
        system = TEMPLATE.format(
            current_datetime=now.strftime("%A %d %B %Y %H:%M:%S"),  # <- volatile
        )
        return [{"role": "system", "content": system}, *history, {"role": "user", "content": text}]
