"""Load generators whose workers send the same requests: one seed for all of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from kvgate.prompts.defect import Defect
from kvgate.prompts.python.project import ModuleSource
from kvgate.prompts.python.tree import FunctionNode, dotted_name, name_of

_SENDS: Final = re.compile(r"/v1/(?:chat/)?completions|chat\.completions|\.generate\(|openai|vllm", re.IGNORECASE)
_SEEDED: Final = re.compile(r"seed\(|Random\(|default_rng\(")
_SEEDS: Final = frozenset({"random.seed", "np.random.seed", "numpy.random.seed", "random.Random", "seed", "Random"})
_MORE_SEEDS: Final = frozenset({"np.random.default_rng", "numpy.random.default_rng", "Faker.seed", "default_rng"})
_STARTS: Final = frozenset({"map", "starmap", "submit", "apply_async", "imap", "imap_unordered", "run_in_executor"})
_TASKS: Final = frozenset({"Process", "Thread", "create_task", "gather", "remote"})


def same_seeds(module: ModuleSource) -> Iterator[Defect]:
    """Seeds that are written out inside a function which several workers run."""
    tree = module.tree
    if tree is None or not _SEEDED.search(module.file.text):
        return
    if not _SENDS.search(module.file.text):
        return
    started = set(_started(tree))
    for node in ast.walk(tree):
        if isinstance(node, FunctionNode) and node.name in started:
            for below in ast.walk(node):
                if isinstance(below, ast.Call) and _is_fixed_seed(below):
                    what = f"each worker of {node.name}() draws from the same seed"
                    yield Defect("benchmark", module.places.span(below), {"what": what})


def _started(tree: ast.Module) -> Iterator[str]:
    """Functions that are handed to a pool, a process or a thread."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = name_of(node.func)
        if name in _STARTS:
            yield from (found for argument in node.args[:2] if (found := name_of(argument)))
        elif name in _TASKS:
            for keyword in node.keywords:
                if keyword.arg == "target" and (found := name_of(keyword.value)):
                    yield found
            for argument in node.args:
                inner = argument.value if isinstance(argument, ast.Starred) else argument
                for below in ast.walk(inner):
                    if isinstance(below, ast.Call) and (found := name_of(below.func)):
                        yield found


def _is_fixed_seed(call: ast.Call) -> bool:
    if dotted_name(call.func) not in _SEEDS | _MORE_SEEDS:
        return False
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return len(arguments) == 1 and isinstance(arguments[0], ast.Constant) and isinstance(arguments[0].value, int)
