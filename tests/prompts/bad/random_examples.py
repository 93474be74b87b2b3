import random

EXAMPLES = ["in: cat out: gato", "in: dog out: perro", "in: house out: casa", "in: tree out: árbol"]
GUIDE = "Translate single words. Give one translation, in lower case, without an article, and nothing else at all.\n" * 3


def prompt(word):
    shots = "\n".join(random.sample(EXAMPLES, 2))
    return f"{shots}\n\n{GUIDE}\nin: {word} out:"  # <- volatile


def translate(llm, word):
    return llm.generate(prompt(word))
