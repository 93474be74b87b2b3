MAX_TURNS = 10
class Chat:
    def __init__(self, client, system):
        self.client = client
        self.messages = [{"role": "system", "content": system}]
    def send(self, text):
        self.messages.append({"role": "user", "content": text})
        if len(self.messages) > MAX_TURNS:
            self.messages = [self.messages[0]] + self.messages[-(MAX_TURNS - 1):]  # <- history
        r = self.client.chat.completions.create(model="m", messages=self.messages)
        self.messages.append({"role": "assistant", "content": r.choices[0].message.content})
        return r
