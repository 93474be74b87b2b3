from context_mode import directive

A = "You are a coding agent. Work in small steps and run the tests after each of them.\n" * 4
B = "Never touch files outside the repository. Never print secrets. Ask before you install anything.\n" * 4


def render(state, history, user):
    system = A + directive(state) + B  # <- volatile
    return [{"role": "system", "content": system}] + history + [{"role": "user", "content": user}]
