class Conversation:
    def __init__(self, client):
        self.client = client
        self.turn_count = 0
        self.history = []

    def ask(self, text):
        self.turn_count += 1
        system = f"Turn {self.turn_count}. You are an interviewer for a job as a nurse. Ask one question at a time and be kind."  # <- volatile
        messages = [{"role": "system", "content": system}, *self.history, {"role": "user", "content": text}]
        return self.client.chat.completions.create(model="m", messages=messages)
