import logging

logger = logging.getLogger(__name__)
POLICY = open("policy.md").read()


async def handle(request, client):
    request_id = request.headers["x-request-id"]
    logger.info("request %s", request_id)
    prompt = "Request " + request_id + "\n" + POLICY  # <- volatile
    return await client.chat.completions.create(
        model="m",
        messages=[{"role": "system", "content": prompt}, {"role": "user", "content": request.text}],
    )
