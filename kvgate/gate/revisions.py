"""Which two states are compared.

The base is ``--base``; else what the CI event calls the base; else the merge base with the default branch. The head is
``--head``; else the working tree as it is, uncommitted changes included.
"""

from __future__ import annotations

from typing import Final

from kvgate.gate.difference import Revision
from kvgate.gate.event import Event
from kvgate.source.snapshot import GitError, Repository

#: What to do about a clone that lacks the base.
_ALL: Final = "set `fetch-depth: 0` in actions/checkout (or run `git fetch --unshallow`)"
_TWO: Final = "set `fetch-depth: 2` in actions/checkout (or `fetch-depth: 0`)"


def choose_revisions(
    repository: Repository, *, base: str | None, head: str | None, event: Event | None
) -> tuple[Revision, Revision]:
    """Base and head of a comparison.

    Raises:
        GitError: the base cannot be told, or this clone does not have it; the message says what to fetch.
    """
    if head is not None:
        chosen = Revision(repository.commit(head), head)
    else:
        chosen = Revision(None, "working tree, uncommitted changes included")
    if base is not None:
        return Revision(_named(repository, base), base), chosen
    at = chosen.commit or repository.find_commit("HEAD")
    if at is None:
        raise GitError("there is no commit yet to compare with")
    if event is not None and event.name not in ("schedule", "workflow_dispatch", "repository_dispatch", "workflow_run"):
        found = _of_event(repository, event, at)
        if found is not None:
            return found, chosen
    return _merge_base(repository, at, event), chosen


def _named(repository: Repository, base: str) -> str:
    commit = repository.find_commit(base)
    if commit is None and not base.startswith("refs/"):
        commit = repository.find_commit(f"refs/remotes/origin/{base}")
    if commit is None:
        hint = f": {_ALL}" if repository.is_shallow() else ", or it was not fetched"
        raise GitError(f'the base "{base}" is no commit of this repository{hint}')
    return commit


def _of_event(repository: Repository, event: Event, head: str) -> Revision | None:
    if event.name in ("pull_request", "pull_request_target"):
        return _of_pull_request(repository, event, head)
    if event.base is None:
        return None
    words = {"merge_group": "base of the merge group", "push": "commit before the push"}
    how = words.get(event.name, "base of the merge request")
    if repository.find_commit(event.base) is None:
        raise GitError(f"the base {event.base[:12]} ({how}) is not in this clone: {_ALL}")
    return Revision(repository.commit(event.base), how)


def _of_pull_request(repository: Repository, event: Event, head: str) -> Revision | None:
    number = f" of pull request {event.number}" if event.number is not None else " of the pull request"
    parents = repository.parents(head)
    merges = len(parents) == 2 and (event.head is None or parents[1] == event.head)
    if merges:
        # what actions/checkout checks out: the change merged into the base as it is now
        how = f"first parent of the merge commit{number}"
        if repository.find_commit(parents[0]) is None:
            raise GitError(f"the base {parents[0][:12]} ({how}) is not in this clone: {_TWO}")
        return Revision(parents[0], how)
    if event.base is None:
        return None
    how = f"merge base{number}"
    if repository.find_commit(event.base) is None:
        raise GitError(f"the base {event.base[:12]} ({how}) is not in this clone: {_ALL}")
    common = repository.merge_base(event.base, head)
    if common is None:
        raise GitError(f"this clone knows no common ancestor of {head[:12]} and the base {event.base[:12]}: {_ALL}")
    return Revision(common, how)


def _merge_base(repository: Repository, head: str, event: Event | None) -> Revision:
    branch = None
    if event is not None and event.default_branch is not None:
        names = (f"refs/remotes/origin/{event.default_branch}", f"refs/heads/{event.default_branch}")
        branch = next((name for name in names if repository.find_commit(name)), None)
    branch = branch or repository.default_branch()
    if branch is None:
        hint = f"; this clone is shallow: {_ALL}" if repository.is_shallow() else ""
        raise GitError(f"no default branch (origin/HEAD, main, master) to compare with: name one with --base{hint}")
    common = repository.merge_base(branch, head)
    short = branch.removeprefix("refs/remotes/").removeprefix("refs/heads/")
    if common is None:
        hint = f": {_ALL}" if repository.is_shallow() else ": name a base with --base"
        raise GitError(f"this clone knows no common ancestor of {head[:12]} and {short}{hint}")
    return Revision(common, f"merge base with {short}")
