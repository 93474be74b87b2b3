def build(search, sys_prompt, question):
    results = search.web(question)
    messages = [
        {"role": "user", "content": "Search results:\n" + results},
        {"role": "system", "content": sys_prompt},
        {"role": "user", "content": question},
    ]
    return messages
