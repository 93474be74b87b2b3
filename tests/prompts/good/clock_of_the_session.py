from datetime import datetime
class Session:
    def __init__(self):
        self.created_at = datetime.now()
        self.system = f"Session started {self.created_at:%Y-%m-%d %H:%M}. " + "You are a coach. " * 40
        self.history = []
    def messages(self, text):
        self.history.append({"role": "user", "content": text})
        return [{"role": "system", "content": self.system}, *self.history]
