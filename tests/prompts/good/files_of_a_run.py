from datetime import datetime
from pathlib import Path

ADDENDUM = "Change the files {names} so that they do what is asked above, and leave everything else as it is. " * 3


def run_all(llm, base):
    folder = Path(base) / f"{datetime.now():%Y-%m-%d-%H-%M-%S}"
    prompt_tokens = 0
    for exercise in sorted(folder.iterdir()):
        task = (exercise / "task.md").read_text()
        errors = run_tests(exercise)
        names = " ".join(path.name for path in (exercise / "a.py", exercise / "b.py"))
        prompt = task + errors + ADDENDUM.format(names=names)
        answer = llm.generate(prompt)
        prompt_tokens += llm.token_count(prompt)
        save(exercise, answer)
    return prompt_tokens


SETTING = """SETTING: You work in a terminal with a special interface.
{command_docs}
Indent properly when you edit. A line that is to stand eight blanks to the right needs all eight of them, written out.
"""


def system_text(command_docs):
    return SETTING.format(command_docs=command_docs)
