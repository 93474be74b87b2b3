INSTRUCTIONS = (
    "Describe the damage on the photo for an insurance. Name the part, the kind of damage and its size. Do not guess "
    "the cause, and do not name persons or number plates that can be seen."
)


def describe(client, url):
    content = [{"type": "text", "text": INSTRUCTIONS}, {"type": "image_url", "image_url": {"url": url}}]
    return client.chat.completions.create(model="vlm", messages=[{"role": "user", "content": content}])


def describe_in_chat(client, url, question):
    return client.chat.completions.create(
        model="vlm",
        messages=[
            {"role": "system", "content": INSTRUCTIONS},
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": url}},
                    {"type": "text", "text": f"{question}\nAnswer in one sentence, please."},
                ],
            },
        ],
    )
