from datetime import datetime, timezone

SYSTEM = "You answer questions about the deeds of a town. Name the deed, the year, and the notary who wrote it down. " * 4
FOUNDED = datetime(1871, 5, 2, 12, 0, tzinfo=timezone.utc)


def deed(client, row, question):
    written = datetime.strptime(row["written"], "%Y-%m-%d")
    read = datetime.fromtimestamp(row["read"])
    head = f"The archive was founded at {FOUNDED:%Y-%m-%d %H:%M}. This deed is of {written}, and was read at {read}. "
    return client.chat.completions.create(
        model="m", messages=[{"role": "system", "content": head + SYSTEM}, {"role": "user", "content": question}]
    )
