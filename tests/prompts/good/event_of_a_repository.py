def pull_request_prompt(payload):
    repo = (payload.get("repository") or {}).get("full_name") or "(unknown)"
    return (
        f"A pull request was opened on {repo}.\n\n"
        "Decide whether it needs an answer. Look at the tests first, then at the description. Write nothing that is "
        "not about the change, and leave style to the linter. When in doubt, ask one question and wait for the answer."
    )


PERSONA = """You are a careful reviewer.
{personality_context}
Read the whole change before you write. Name the file and the line. Praise what is good in one sentence, and be exact
about what is wrong: what happens, when it happens, and what would be right instead."""


def review(client, box, diff):
    system = box.context.get("system_message")
    return client.chat.completions.create(
        model="m", messages=[{"role": "system", "content": system}, *box.messages, {"role": "user", "content": diff}]
    )
