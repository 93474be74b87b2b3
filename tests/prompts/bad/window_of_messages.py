SYSTEM = {"role": "system", "content": "You are a patient teacher of mathematics for children of ten years."}
MAX_MESSAGES = 120


class Session:
    def __init__(self):
        self.messages = []

    def request(self, text):
        self.messages.append({"role": "user", "content": text})
        return [SYSTEM, *self.messages[-MAX_MESSAGES:]]  # <- history
