MAX = 200
KEEP = 120
class Chat:
    def __init__(self, client, system):
        self.client, self.messages, self.system = client, [], system
    def send(self, text):
        self.messages.append({"role": "user", "content": text})
        if len(self.messages) > MAX:
            self.messages = self.messages[-KEEP:]
        return self.client.chat.completions.create(model="m", messages=[{"role": "system", "content": self.system}, *self.messages])
