from clock_across_files_helper import local_time

INTRO = "You are a voice assistant in a car. Speak in short sentences and never read out web addresses or numbers of bank accounts.\n"


def build_messages(question):
    return [
        {"role": "system", "content": f"[{local_time()}] {INTRO}"},  # <- volatile
        {"role": "user", "content": question},
    ]
