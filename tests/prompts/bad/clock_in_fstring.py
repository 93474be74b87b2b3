from datetime import datetime

from openai import OpenAI

client = OpenAI(base_url="http://vllm:8000/v1", api_key="none")


def answer(question: str) -> str:
    system = (
        f"Current time: {datetime.now().isoformat()}\n"  # <- volatile
        "You are the support assistant of a furniture shop. Answer in two or three sentences, "
        "never promise a delivery date, and hand over to a person when the customer is upset."
    )
    response = client.chat.completions.create(
        model="Qwen/Qwen2.5-7B-Instruct",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": question}],
    )
    return response.choices[0].message.content
