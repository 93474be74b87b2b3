SYSTEM = """You answer questions about the building code. Use only the excerpts in the message of the user, quote the
paragraph, and say so when they do not answer the question. Do not give legal advice."""


def build_messages(history, question, retriever):
    chunks = retriever.search(question, top_k=6)
    context = "\n---\n".join(chunk.text for chunk in chunks)
    turn = f"Excerpts:\n{context}\n\nQuestion: {question}\nAnswer in at most five sentences."
    return [{"role": "system", "content": SYSTEM}, *history, {"role": "user", "content": turn}]
