"""The window moves in strides, so that most turns extend the one before."""

WINDOW, STRIDE = 120, 16


class History:
    def __init__(self, system):
        self.system = system
        self.messages = []

    def visible(self):
        overflow = max(0, len(self.messages) - WINDOW)
        start = -(-overflow // STRIDE) * STRIDE
        return [{"role": "system", "content": self.system}, *self.messages[start:]]

    def compact(self):
        if len(self.messages) > 200:
            self.messages = self.messages[-60:]

    def ask(self, client, text):
        self.messages.append({"role": "user", "content": text})
        self.compact()
        return client.chat.completions.create(model="m", messages=self.visible())
