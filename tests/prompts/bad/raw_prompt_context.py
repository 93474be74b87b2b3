async def handler(client, vectordb, question):
    hits = await vectordb.query(question, top_k=5)
    context = "\n\n".join(h.payload["text"] for h in hits)
    prompt = f"{context}\n\nYou are a legal assistant. Answer the question with the context above, cite the article, do not invent anything, and write at most ten sentences in formal language.\n\nQuestion: {question}"  # <- retrieval
    return await client.completions.create(model="m", prompt=prompt, max_tokens=300)
