from openai import AsyncOpenAI

client = AsyncOpenAI()
RULES = (
    "Answer from the context only. If the answer is not in it, say that you do not know. "
    "Quote the file name of each source in brackets. Answer in at most five sentences."
)


async def ask(question, retriever, history):
    docs = await retriever.ainvoke(question)
    context = "\n\n".join(d.page_content for d in docs)
    system = "Context:\n" + context + "\n\n" + RULES  # <- retrieval
    return await client.chat.completions.create(
        model="rag", messages=[{"role": "system", "content": system}, *history, {"role": "user", "content": question}]
    )
