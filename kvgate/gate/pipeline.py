"""From paths and two revisions to a :class:`~kvgate.gate.difference.Difference`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvgate.config import ConfigError
from kvgate.engine.secrets import find_secrets, redact
from kvgate.errors import KvgateError
from kvgate.findings.baseline import BaselineError, read_baseline
from kvgate.gate.compare import Comparison, compare
from kvgate.gate.difference import Difference, redacted
from kvgate.gate.event import Event
from kvgate.gate.policy import configuration_changes, folder_changes, overlay_folder, under_policy_of
from kvgate.gate.revisions import choose_revisions
from kvgate.gate.rules import RULES as GATE_RULES
from kvgate.gate.state import Checking, State, find_configuration, is_of_no_interest, read_state
from kvgate.options import RunOptions
from kvgate.plan import PlanOverrides
from kvgate.records import record
from kvgate.ruleset.load import load_rules
from kvgate.ruleset.run import Selection
from kvgate.source.snapshot import GitError, Repository, Snapshot
from kvgate.source.text import SourceFile

if TYPE_CHECKING:
    from kvgate.config import Config
    from kvgate.gate.difference import Revision

#: The label by which a maintainer accepts what the gate stops.
OVERRIDE_LABEL: Final = "kvgate/accept-capacity-drop"


class DiffError(KvgateError):
    """What was asked for cannot be compared."""


@record
class DiffOptions(RunOptions):
    """What ``kvgate diff`` was asked for beyond the paths; ``config`` and ``baseline`` are read from the base.

    Attributes:
        base, head: revisions; None finds the base, and takes the working tree as head.
        event: what the CI system says of the change.
        override_label: the label that accepts what the gate stops.
        version: kvgate's own, for the report.
    """

    base: str | None = None
    head: str | None = None
    event: Event | None = None
    override_label: str = OVERRIDE_LABEL
    version: str = ""


def diff_trees(paths: Sequence[Path], options: DiffOptions, checking: Checking) -> Difference:
    """Compare two states of the repository that the current folder is in.

    Paths in the result are relative to the folder of the base's kvgate.yaml (else of the head's, else to the current
    one).

    Args:
        checking: how one state is read and judged.

    Raises:
        KvgateError: there is no repository, a revision cannot be reached, a path lies outside, kvgate.yaml or a rule
            file is wrong.
    """
    here = Path.cwd()
    repository = Repository.find(here, options.environ)
    base, head = choose_revisions(repository, base=options.base, head=options.head, event=options.event)
    named = [_inside(repository, here, path) for path in paths]
    with tempfile.TemporaryDirectory(prefix="kvgate-", ignore_cleanup_errors=True) as folder:
        top = Path(folder).resolve()
        before = _snapshot(repository, base, top / "base")
        after = _snapshot(repository, head, top / "head")
        for path, shown in zip(named, paths, strict=True):
            if not any((snapshot.folder / path).exists() for snapshot in (before, after)):
                hint = _hint_for(repository, str(shown))
                raise DiffError(f"{shown}: neither the base nor the head has such a file or directory{hint}")
        trees = _Trees(repository, here.relative_to(repository.top), before, after)
        return _compare(trees, (base, head), named, options, checking)


def _hint_for(repository: Repository, word: str) -> str:
    """What to write instead of a revision in the place of a path."""
    try:
        known = repository.find_commit(word)
    except GitError:
        return ""
    return f" (a revision to compare with: --base {word})" if known else ""


@record
class _Trees:
    repository: Repository
    here: Path
    base: Snapshot
    head: Snapshot


def _snapshot(repository: Repository, revision: Revision, folder: Path) -> Snapshot:
    folder.mkdir()
    if revision.commit is None:
        return repository.write_working_tree(folder, skip=is_of_no_interest)
    return repository.write_commit(revision.commit, folder, skip=is_of_no_interest)


def _inside(repository: Repository, here: Path, path: Path) -> Path:
    """A path relative to the repository's root."""
    absolute = Path(os.path.abspath(here / path))
    for candidate in (absolute, absolute.resolve()):
        if candidate.is_relative_to(repository.top):
            return candidate.relative_to(repository.top)
    raise DiffError(f"{path}: outside of the repository {repository.top}")


def _compare(
    trees: _Trees, revisions: tuple[Revision, Revision], named: Sequence[Path], options: DiffOptions, checking: Checking
) -> Difference:
    policy = _configuration(trees, trees.base, options.config)
    own = _configuration(trees, trees.head, options.config)
    head_file = _file(own)
    place = next((config.root for config in (policy, own) if config.path is not None), policy.root)
    shared = _relative(place, trees)
    policy = replace(policy, root=trees.base.folder / shared)
    own = replace(own, root=trees.head.folder / shared)
    changes = [
        *configuration_changes(policy, own, head_file),
        *folder_changes(policy.root, own.root, policy.baseline),
    ]
    accepted, proposed = _baselines(trees, policy, own, options)
    overlay_folder(policy.root, own.root)
    overrides = PlanOverrides(vllm_version=options.vllm_version, gpu=options.gpu)
    online = policy.online if options.online is None else options.online
    states = [
        read_state(
            snapshot,
            [snapshot.folder / path for path in named],
            config,
            checking.read,
            overrides=overrides,
            online=online,
            environ=options.environ,
        )
        for snapshot, config in ((trees.base, policy), (trees.head, under_policy_of(policy, own)))
    ]
    labels = options.event.labels if options.event is not None else frozenset()
    difference = compare(
        Comparison(
            base=states[0],
            head=states[1],
            base_revision=revisions[0],
            head_revision=revisions[1],
            policy=policy,
            rules=load_rules(policy.root, thorough=False),
            judge=checking.judge,
            selection=Selection(
                select=options.select,
                ignore=tuple(name for name in options.ignore if name not in GATE_RULES),
                preview=options.preview,
                profile=options.profile or policy.profile,
                config={name: said for name, said in policy.rules.items() if name not in GATE_RULES},
            ),
            ignored=frozenset(options.ignore).intersection(GATE_RULES),
            accepted=accepted,
            proposed=proposed - accepted,
            changes=tuple(changes),
            label=options.override_label if options.override_label in labels else None,
            version=options.version,
        )
    )
    return _without_secrets(difference, states)


def _without_secrets(difference: Difference, states: Sequence[State]) -> Difference:
    """The difference with the secrets of both states masked wherever they are quoted."""
    secrets: set[str] = set()
    for plan, _ in (unit for state in states for unit in state.units):
        variables = [(item.name, item.value.value) for item in plan.unit.environment if item.value is not None]
        secrets |= find_secrets([word.value for word in plan.unit.words], variables)
    if not secrets:
        return difference
    for file in (file for state in states for file in state.collection.files):
        file.secrets = frozenset(secret for secret in secrets if secret in file.text)
    return redacted(difference, lambda text: redact(text, secrets))


def _configuration(trees: _Trees, snapshot: Snapshot, named: Path | None) -> Config:
    file = named
    if named is not None:
        with suppress(ValueError):  # a file outside of the repository is the same for both
            file = snapshot.folder / _inside_tree(trees, named)
    try:
        return find_configuration(snapshot.folder, snapshot.folder / trees.here, file)
    except ConfigError as error:
        raise DiffError(f"in the {'base' if snapshot is trees.base else 'head'}: {error}") from None


def _inside_tree(trees: _Trees, path: Path) -> Path:
    return Path(os.path.abspath(trees.repository.top / trees.here / path)).relative_to(trees.repository.top)


def _relative(root: Path, trees: _Trees) -> Path:
    for snapshot in (trees.base, trees.head):
        if root.is_relative_to(snapshot.folder):
            return root.relative_to(snapshot.folder)
    return trees.here


def _file(config: Config) -> SourceFile | None:
    if config.path is None:
        return None
    try:
        return SourceFile.from_bytes(config.path, (config.root / config.path).read_bytes())
    except (OSError, UnicodeDecodeError):
        return None


def _baselines(
    trees: _Trees, policy: Config, own: Config, options: DiffOptions
) -> tuple[frozenset[str], frozenset[str]]:
    """Fingerprints that the base accepts, and those that the head would."""
    if options.baseline is not None:
        try:
            inside = _inside_tree(trees, options.baseline)
        except ValueError:
            return _accepted(options.baseline, str(options.baseline), needed=True), frozenset()
        pairs = [(snapshot.folder / inside) for snapshot in (trees.base, trees.head)]
        if not any(file.exists() for file in pairs):
            raise DiffError(f"{options.baseline}: neither the base nor the head has such a file")
        files: list[Path | None] = list(pairs)
    else:
        files = [config.root / config.baseline if config.baseline else None for config in (policy, own)]
    first, second = (_accepted(file, file.name, needed=False) if file else frozenset() for file in files)
    return first, second


def _accepted(file: Path, shown: str, *, needed: bool) -> frozenset[str]:
    if not needed and not file.exists():
        return frozenset()
    try:
        return read_baseline(file.read_text(encoding="utf-8"))
    except (BaselineError, UnicodeDecodeError) as error:
        raise DiffError(f"{shown}: {error}") from None
    except OSError as error:
        raise DiffError(f"{shown}: {error.strerror or error}") from None
