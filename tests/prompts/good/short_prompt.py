from datetime import datetime


def ask(llm, question):
    return llm.chat(
        [{"role": "system", "content": f"Time: {datetime.now()}. Be brief."}, {"role": "user", "content": question}]
    )
