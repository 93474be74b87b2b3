from collections import deque
class Chat:
    def __init__(self, client):
        self.client = client
        self.history = deque(maxlen=20)  # <- history
    def send(self, text):
        self.history.append({"role": "user", "content": text})
        return self.client.chat.completions.create(model="m", messages=[{"role": "system", "content": "Hi"}, *self.history])
