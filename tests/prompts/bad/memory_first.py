def build(system: str, memory: str, history: list, question: str):
    system = memory + system  # <- retrieval
    return [{"role": "system", "content": system}] + history + [{"role": "user", "content": question}]
