def remember(messages, reply):
    text = reply.choices[0].message.content
    why = reply.choices[0].message.reasoning
    messages.append({"role": "assistant", "content": text, "reasoning_content": why})  # <- history
