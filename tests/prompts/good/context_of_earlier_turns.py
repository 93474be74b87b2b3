SYSTEM = "You help with the household. Answer from the notes that stand beside a question, and name the note. " * 3
FOUND = "These notes were found:\n{notes}\nUse them for the answer, and ask when they contradict each other or are old."
WEB = "These pages were found:\n{pages}\nUse them only where the notes say nothing, and give the address of each page."


def conversation(client, chat_history, question, memories):
    messages = [{"role": "system", "content": SYSTEM}]
    for turn in chat_history:
        context = []
        if turn.onlineContext:
            context += [{"type": "text", "text": WEB.format(pages=turn.onlineContext)}]
        if turn.context:
            context += [{"type": "text", "text": FOUND.format(notes=turn.context)}]
        messages.append({"role": "user", "content": context})
        messages.append({"role": "assistant", "content": turn.answer})
    remembered = "What was said before:\n"
    for memory in memories:
        at = memory.created_at.strftime("%Y-%m-%d %H:%M:%S")
        remembered += f"- [{at}] {memory.raw}\n"
    messages.append({"role": "user", "content": remembered + "It may be out of date, and the question may be another."})
    messages.append({"role": "user", "content": "Answer in three sentences at most, and without lists. " * 2 + question})
    return client.chat.completions.create(model="m", messages=messages)
