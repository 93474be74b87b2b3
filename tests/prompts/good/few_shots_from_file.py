from pathlib import Path

import yaml

EXAMPLES = yaml.safe_load(Path("few_shots.yaml").read_text())
RULES = Path("rules.md").read_text()


def prompt(sentence: str) -> str:
    shots = "\n\n".join(f"in: {shot['in']}\nout: {shot['out']}" for shot in EXAMPLES)
    return f"{shots}\n\n{RULES}\n\nin: {sentence}\nout:"


def classify(llm, sentences):
    return llm.generate([prompt(sentence) for sentence in sentences])
