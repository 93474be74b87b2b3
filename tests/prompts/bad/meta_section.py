import datetime

class PromptBuilder:
    def __init__(self, rules):
        self.rules = rules

    def _now(self):
        return datetime.datetime.now().strftime("%H:%M")

    def build(self, q):
        sections = [
            f"<meta>time={self._now()}</meta>",  # <- volatile
            "<rules>" + self.rules + "</rules>",
        ]
        system = "\n".join(sections)
        return [{"role": "system", "content": system}, {"role": "user", "content": q}]
