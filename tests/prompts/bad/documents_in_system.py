from app.rag import retrieve
INSTRUCTIONS = """Answer with the documents only. Cite the document id after each sentence. If the documents do not contain the
answer, say so. Never use outside knowledge. Answer in English with no more than six sentences."""

def build_prompt(question):
    docs = retrieve(question, k=8)
    context = "\n".join(d["text"] for d in docs)
    return [
        {"role": "system", "content": f"Documents:\n{context}\n\n{INSTRUCTIONS}"},  # <- retrieval
        {"role": "user", "content": question},
    ]
