from datetime import datetime


class Conversation:
    """The clock is read once, when the conversation begins."""

    def __init__(self, client, user_name):
        self.client = client
        self.started = datetime.now().strftime("%Y-%m-%d %H:%M")
        self.messages = [
            {
                "role": "system",
                "content": f"The conversation began at {self.started}.\nYou are a calm partner for practising job "
                "interviews. Ask one question at a time, and give feedback only when you are asked for it.",
            }
        ]

    def ask(self, text):
        self.messages.append({"role": "user", "content": text})
        reply = self.client.chat.completions.create(model="m", messages=self.messages)
        self.messages.append({"role": "assistant", "content": reply.choices[0].message.content})
        return self.messages[-1]["content"]
