SYSTEM = "You summarise contracts for people without legal training. Name dates, amounts, and duties of each side. " * 3


def summarise(llm, document):
    user = f"Contract:\n{document}\n\nWrite the summary now, in plain language, with at most ten points."
    return llm.chat([{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}])
