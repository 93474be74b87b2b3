class Agent:
    SYSTEM = "You are an agent for home automation. Use the tools to switch lights, blinds and heating. Confirm each action briefly."

    async def respond(self, hass, conversation, text):
        state = await hass.get_states()
        content = f"Current time: {hass.now()}\n" + self.SYSTEM  # <- volatile
        msgs = [{"role": "system", "content": content}] + conversation.messages + [{"role": "user", "content": text}]
        return await self.client.chat.completions.create(model="m", messages=msgs, tools=self.tools)
