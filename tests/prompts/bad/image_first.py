INSTRUCTIONS = (
    "Read the invoice. Give the seller, the date, every line with its amount and its tax rate, and the total. "
    "Write JSON that follows the schema below and nothing else. Use null for what the picture does not show. "
    "Never compute a total yourself, and never translate the names of goods."
)


def read_invoice(client, data_url):
    return client.chat.completions.create(
        model="vlm",
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": data_url}},  # <- media
                    {"type": "text", "text": INSTRUCTIONS},
                ],
            }
        ],
    )
