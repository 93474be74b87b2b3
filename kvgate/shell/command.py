"""Simple commands, and the programs that only run another one."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import field
from typing import Final

from kvgate.patterns import regex
from kvgate.records import record
from kvgate.shell.value import Value, value_of_word
from kvgate.source.text import Span, Word

# Programs that hand a word of theirs, or their input, to a shell: here or on another machine.
HANDS_ON: Final = frozenset(
    {
        "bsub", "byobu", "clush", "concurrently", "flock", "gcloud", "gnome-terminal", "konsole", "mosh",
        "parallel-ssh", "pdsh", "pm2", "pssh", "qsub", "runuser", "sbatch", "screen", "script", "sg", "ssh", "su",
        "tmux", "watch", "wsl", "xterm",
    }
)  # fmt: skip
SHELLS: Final = frozenset({"sh", "bash", "ash", "dash", "zsh", "ksh", "busybox"})


@record
class Assignment:
    """A variable that the command's environment gets from the script; it stands at ``span``."""

    name: str
    value: Value
    span: Span


@record
class Command:
    """One simple command.

    Attributes:
        words: its words, wrappers (``exec``, ``env A=b``, ``nohup``, ``sudo``, ``timeout 5``) taken off.
        environment: variables that the script exports to it, in order.
        conditions: what must hold for it to run, as written; empty when it always runs.
        span: the command as written.
        caller: the command of the script itself that runs the other script in which this one stands, None elsewhere.
        settings: the files of settings that the script wrote before and that its words name, by their path.
    """

    words: tuple[Word, ...]
    environment: tuple[Assignment, ...]
    conditions: tuple[str, ...]
    span: Span
    caller: Span | None = None
    settings: Mapping[str, Value] = field(default_factory=dict)


def basename(word: Word) -> str:
    """The file name of a program, also behind a folder that is not known; nothing where it is not known itself."""
    if word.resolved:
        return word.value.rpartition("/")[2]
    _, slash, name = value_of_word(word).masked("\0").rpartition("/")
    return name if slash and "\0" not in name else ""


def names_program(word: Word, programs: Container[str]) -> bool:
    """Whether a word is the name of one of some programs, behind whatever folder: :func:`basename`, but cheap."""
    value = word.text.value
    return value[value.rfind("/") + 1 :] in programs and (not word.unresolved or basename(word) in programs)


def path_of(word: Word) -> str:
    """The path that a word names; one behind an unknown directory (``$SCRIPT_DIR/x``) counts from where the script is.

    Empty where more of it is unknown.
    """
    if word.resolved:
        return word.value
    first = word.unresolved[0]
    if len(word.unresolved) == 1 and word.value.startswith(first.text + "/"):
        return "." + word.value[len(first.text) :]
    return ""


# Programs that run the rest of their words: options that take a value of their own, and how many words of their own
# stand before the command.
WRAPPERS: Final[Mapping[str, tuple[frozenset[str], int]]] = {
    "exec": (frozenset({"-a"}), 0),
    "command": (frozenset(), 0),
    "builtin": (frozenset(), 0),
    "nohup": (frozenset(), 0),
    "setsid": (frozenset(), 0),
    "time": (frozenset({"-f", "-o"}), 0),
    "sudo": (frozenset({"-u", "-g", "-h", "-p", "-C", "-r", "-t", "-D", "-R", "-T", "-U"}), 0),
    "doas": (frozenset({"-u", "-C"}), 0),
    "nice": (frozenset({"-n"}), 0),
    "ionice": (frozenset({"-c", "-n", "-p"}), 0),
    "chrt": (frozenset({"-p"}), 1),
    "timeout": (frozenset({"-k", "-s"}), 1),
    "stdbuf": (frozenset({"-i", "-o", "-e"}), 0),
    "taskset": (frozenset(), 1),
    "numactl": (frozenset({"-N", "-m", "-C", "-i", "-p"}), 0),
    "unbuffer": (frozenset(), 0),
    "catchsegv": (frozenset(), 0),
    "tini": (frozenset({"-p"}), 0),
    "dumb-init": (frozenset(), 0),
    "gosu": (frozenset(), 1),
    "su-exec": (frozenset(), 1),
    "sshpass": (frozenset({"-f", "-p", "-P"}), 0),
    "env": (frozenset({"-u", "-C", "--unset", "--chdir"}), 0),
}
_VARIABLE: Final = regex(r"([A-Za-z_][A-Za-z0-9_]*)=")


def unwrap(words: tuple[Word, ...]) -> tuple[tuple[Word, ...], list[Assignment]]:
    """A command without the wrappers around it, and the variables that ``env`` (or ``sudo``) sets for it."""
    added: list[Assignment] = []
    while words:
        name = basename(words[0])
        wrapper = WRAPPERS.get(name)
        if wrapper is None:
            break
        with_value, own = wrapper
        at = 1
        while at < len(words) and words[at].value.startswith("-") and len(words[at].value) > 1:
            option = words[at].value
            at += 1
            if option == "--":
                break
            if option in with_value:
                at += 1
        if name in ("env", "sudo"):
            while at < len(words):
                match = _VARIABLE.match(words[at].value)
                if not match:
                    break
                value = value_of_word(words[at]).slice(match.end(), len(words[at].text))
                added.append(Assignment(match.group(1), value, words[at].span))
                at += 1
        words = words[at + own :]
    return words, added
