def system_prompt(user):
    return (
        f"User: {user.name} ({user.email})\n"  # <- volatile
        "You are the assistant of a learning platform. Explain step by step, ask a check question after each step, and never "
        "give the final solution of an exercise."
    )

def build(user, q):
    return [{"role": "system", "content": system_prompt(user)}, {"role": "user", "content": q}]
