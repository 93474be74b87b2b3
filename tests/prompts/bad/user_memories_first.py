SHARED_RULES = """You are the assistant of a project tool. Use the tools to read and change tickets. Ask before you
delete anything, never assign people without their consent, and answer in the language of the workspace."""


def system_prompt(user_memories: str) -> str:
    system = user_memories + SHARED_RULES  # <- volatile
    return system


def messages(store, user, history):
    return [{"role": "system", "content": system_prompt(store.memories_of(user))}, *history]
