from datetime import datetime


class Assistant:
    base = "You help with tax questions of self-employed people. Name the paragraph, and say that you are no lawyer.\n" * 2

    @property
    def system_prompt(self):
        return f"Now: {datetime.now():%d.%m.%Y %H:%M}\n{self.base}"  # <- volatile

    def request(self, text):
        return [{"role": "system", "content": self.system_prompt}, {"role": "user", "content": text}]
