"""Times requests and writes them to the log; nothing of it is sent."""

import logging
import time
import uuid
from datetime import datetime

from openai import AsyncOpenAI

logger = logging.getLogger(__name__)
client = AsyncOpenAI(base_url="http://vllm:8000/v1", api_key="none")

SYSTEM_PROMPT = (
    "You are the assistant of a public library. Help people find books, renew loans and book rooms. "
    "Answer in the language of the question and in at most four sentences."
)


async def answer(question: str) -> str:
    request_id = uuid.uuid4().hex
    started = time.perf_counter()
    logger.info("[%s] %s prompt=%r", request_id, datetime.now().isoformat(), question)
    messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": question}]
    response = await client.chat.completions.create(
        model="assistant", messages=messages, extra_headers={"X-Request-Id": request_id}
    )
    logger.info(f"{request_id} done at {datetime.now()} after {time.perf_counter() - started:.2f} s")
    print(f"{datetime.now():%H:%M:%S} {request_id}: prompt answered")
    return response.choices[0].message.content
