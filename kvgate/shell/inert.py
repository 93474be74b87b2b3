"""Which functions of a script need no reading: they print, look and wait, and leave no variable behind.

Scripts call their helpers for messages and checks by the hundred, and each call costs as much as one that starts a
server. A function is inert where every command in it is a program of the list below or another inert function, and
where it assigns nothing but its own ``local`` variables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

#: Programs and builtins that neither start another program of their arguments nor change a variable.
HARMLESS: Final = frozenset(
    {
        ":", "[", "awk", "basename", "break", "cat", "chmod", "chown", "column", "continue", "cp", "curl", "cut",
        "date", "df", "dirname", "du", "echo", "egrep", "exit", "false", "fgrep", "fold", "free", "grep", "head",
        "hostname", "id", "jq", "kill", "ln", "ls", "lsof", "mkdir", "mktemp", "mv", "nproc", "nvidia-smi", "pgrep",
        "pkill", "printf", "ps", "pwd", "realpath", "return", "rm", "sed", "seq", "sleep", "sort", "ss", "stat",
        "tail", "tee", "test", "touch", "tput", "tr", "true", "type", "uname", "uniq", "wait", "wc", "which", "whoami",
    }
)  # fmt: skip
#: Those of them that say nothing about what comes after them.
SILENT: Final = HARMLESS - {":", "break", "continue", "exit", "return"}

_LOCAL: Final = frozenset({"local", "declare", "typeset"})
# what defines something for later, or what other readers look into
_LASTING: Final = frozenset(
    {"ERROR", "function_definition", "heredoc_redirect", "process_substitution", "unset_command"}
)


def is_inert(body: Any, text: Callable[[Any], str], is_inert_function: Callable[[str], bool]) -> bool:
    """Whether a function's body starts nothing and leaves nothing behind.

    Args:
        body: its node in the tree of tree-sitter-bash.
        text: what stands at a node.
        is_inert_function: the same question about a function by its name.
    """
    own: set[str] = set()
    assigned: set[str] = set()
    stack = [body]
    while stack:
        node = stack.pop()
        kind = node.type
        if kind in _LASTING:
            return False
        if kind == "command":
            name = node.child_by_field_name("name")
            head = "" if name is None else text(name)
            if head == "command":  # `command -v NAME` asks, `command NAME` runs
                if [text(child) for child in node.children[1:2]] != ["-v"]:
                    return False
            elif head not in HARMLESS and not is_inert_function(head):
                return False
        elif kind == "declaration_command":
            if text(node.children[0]) not in _LOCAL or any(_lasts(text(child)) for child in node.children):
                return False
            own |= {text(name) for name in map(_declared, node.children) if name is not None}
        elif kind == "variable_assignment" and node.parent.type not in ("command", "declaration_command"):
            assigned.add(text(node.child_by_field_name("name")))
        elif kind in ("for_statement", "select_statement"):
            assigned.add(text(node.child_by_field_name("variable")))
        stack += node.children
    return assigned <= own


def _lasts(word: str) -> bool:
    """Whether a word is an option by which a declaration outlives the function (``-x``, ``-g``)."""
    return word.startswith("-") and ("x" in word or "g" in word)


def _declared(node: Any) -> Any:
    """The name that a part of a declaration declares; None for its keyword and its options."""
    if node.type == "variable_assignment":
        return node.child_by_field_name("name")
    return node if node.type == "variable_name" else None
