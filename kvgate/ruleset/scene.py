"""What stands around the units of a run: its files, its Kubernetes objects, and the other units.

A check reaches it through its case (``case.scene``). Everything is read when it is first asked for, so that a run whose
rules ask for nothing pays nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kvgate.patterns import regex
from kvgate.source.text import SourceFile

if TYPE_CHECKING:
    from kvgate.config import Config
    from kvgate.manifests.objects import Objects
    from kvgate.manifests.tree import Tree
    from kvgate.ruleset.case import Case
    from kvgate.source.text import Span


#: Endings of files that are no manifests and may speak of a server: its clients, dashboards, alerts and proxies.
BESIDE_SUFFIXES: Final = frozenset(
    {".py", ".js", ".mjs", ".ts", ".tsx", ".go", ".json", ".jsonnet", ".libsonnet", ".conf", ".cfg", ".rules", ".toml",
     ".env", ".ini", ".sh", ".bash", ".http"}
)  # fmt: skip
MAX_BESIDE_CHARACTERS: Final = 400_000
_TELLING: Final = regex(
    r"vllm[:_]|max_(?:\w+_)?tokens|maxTokens|tool_choice|\bupstream\b|^backend\s|\breverse_proxy\b|routing[-_]logic",
    re.IGNORECASE | re.MULTILINE,
)


class Scene:
    """A run as a whole.

    Args:
        files: every file of the run.
        tree: the same files as a tree that can also look beside them; made from ``files`` where it is not given.
        config: kvgate.yaml.
        beside: reads what stands beside the manifests (clients, dashboards, proxies; :data:`BESIDE_SUFFIXES`). Asked
            once, and only by a rule that looks there.
    """

    def __init__(
        self,
        files: Iterable[SourceFile] = (),
        tree: Tree | None = None,
        config: Config | None = None,
        beside: Callable[[], Iterable[SourceFile]] | None = None,
    ) -> None:
        self.files: Mapping[str, SourceFile] = {file.path: file for file in files}
        self._beside = beside
        self._everything: Mapping[str, SourceFile] | None = None
        self.config = config
        self.cases: tuple[Case, ...] = ()
        self._tree = tree
        self._objects: Objects | None = None
        self._matches: dict[re.Pattern[str], list[tuple[SourceFile, re.Match[str]]]] = {}

    @property
    def tree(self) -> Tree:
        if self._tree is None:
            from kvgate.manifests.tree import Tree

            self._tree = Tree(tuple(self.files.values()))
        return self._tree

    @property
    def objects(self) -> Objects:
        """The Kubernetes objects of the tree."""
        if self._objects is None:
            from kvgate.manifests.objects import Objects

            self._objects = Objects(self.tree)
        return self._objects

    @property
    def everything(self) -> Mapping[str, SourceFile]:
        """The files of the run, and those beside them that may have to do with the servers."""
        if self._everything is None:
            found = dict(self.files)
            if self._beside is not None and (self.cases or self.objects.all):
                for file in self._beside():
                    if len(file.text) <= MAX_BESIDE_CHARACTERS and _TELLING.search(file.text):
                        found.setdefault(file.path, file)
            self._everything = found
        return self._everything

    def matches(self, pattern: re.Pattern[str], *hints: str) -> list[tuple[SourceFile, re.Match[str]]]:
        """Files in which a pattern is found, with its first match; asked once of a run.

        Args:
            hints: texts of which one is in every file that the pattern can be found in: looking for them is cheaper.
        """
        found = self._matches.get(pattern)
        if found is None:
            found = self._matches[pattern] = [
                (file, match)
                for file in self.everything.values()
                if any(hint in file.text for hint in hints) and (match := pattern.search(file.text)) is not None
            ]
        return found

    @property
    def looked_at(self) -> tuple[SourceFile, ...]:
        """The files that rules may have found something in."""
        return tuple((self._everything or self.files).values())

    def siblings(self, case: Case) -> list[Case]:
        """The other units of the same file, or of the same directory."""
        from kvgate.manifests.tree import distance

        return [other for other in self.cases if other is not case and distance(other.unit.path, case.unit.path) <= 0]

    def first_line(self) -> Span | None:
        """Where an error of a check over the whole run is placed: the first line of the first file."""
        for file in self.files.values():
            return file.line_span(1)
        return None
