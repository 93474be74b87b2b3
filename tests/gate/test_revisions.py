"""Which commit is the base, in every event, and what is said where this clone does not have it."""

from __future__ import annotations

import json

import pytest

from kvgate.gate.event import Event, read_event
from kvgate.gate.revisions import choose_revisions
from kvgate.source.snapshot import GitError, Repository

TEXT = {"a.yaml": "one\n"}


def choose(repo, root=None, **options):
    found = Repository.find(root or repo.root, repo.environ)
    options = {"base": None, "head": None, "event": None, **options}
    return choose_revisions(found, **options)


@pytest.fixture
def merged(repo):
    """main and topic, merged as GitHub merges a pull request: base, head of the change, merge commit."""
    repo.commit(TEXT, "start")
    repo.git("checkout", "--quiet", "-b", "topic")
    head = repo.commit({"a.yaml": "two\n"}, "change")
    repo.git("checkout", "--quiet", "main")
    base = repo.commit({"b.yaml": "other\n"}, "main went on")
    repo.git("checkout", "--quiet", "--detach")
    repo.git("merge", "--quiet", "--no-ff", "--no-edit", head)
    return base, head, repo.git("rev-parse", "HEAD")


def clone(repo, tmp_path, *options, name="clone"):
    repo.git("clone", "--quiet", *options, repo.root.as_uri(), str(tmp_path / name), cwd=tmp_path)
    return tmp_path / name


# -- without an event ----------------------------------------------------------------------------------------------


def test_a_named_base_is_taken_as_it_is(repo):
    first = repo.commit(TEXT)
    repo.commit({"a.yaml": "two"})
    base, head = choose(repo, base="HEAD~1")
    assert (base.commit, base.how, head.commit) == (first, "HEAD~1", None)
    assert str(head) == "working tree, uncommitted changes included"


def test_a_named_head(repo):
    repo.commit(TEXT)
    second = repo.commit({"a.yaml": "two"})
    _, head = choose(repo, base="HEAD~1", head="HEAD")
    assert (head.commit, head.how) == (second, "HEAD")


def test_a_branch_of_the_remote_is_found_by_its_short_name(repo, tmp_path):
    repo.commit(TEXT)
    repo.git("branch", "release")
    found = clone(repo, tmp_path)
    base, _ = choose(repo, found, base="release")
    assert base.commit == repo.git("rev-parse", "HEAD")


def test_the_merge_base_with_the_default_branch(repo, tmp_path):
    start = repo.commit(TEXT)
    found = clone(repo, tmp_path)
    repo.commit({"a.yaml": "main went on"})
    repo.git("fetch", "--quiet", cwd=found)
    repo.git("checkout", "--quiet", "-b", "topic", cwd=found)
    (found / "a.yaml").write_text("mine")
    repo.git("commit", "--quiet", "-am", "mine", cwd=found)
    base, _ = choose(repo, found)
    assert (base.commit, base.how) == (start, "merge base with origin/main")


def test_uncommitted_changes_on_the_default_branch(repo):
    head = repo.commit(TEXT)
    repo.write({"a.yaml": "uncommitted"})
    base, _ = choose(repo)
    assert (base.commit, base.how) == (head, "merge base with main")


def test_a_repository_without_commits(repo):
    with pytest.raises(GitError, match="no commit yet"):
        choose(repo)


def test_no_default_branch(repo):
    repo.commit(TEXT)
    repo.git("branch", "-m", "odd")
    with pytest.raises(GitError, match="name one with --base"):
        choose(repo)


def test_unrelated_histories(repo):
    repo.commit(TEXT)
    repo.git("checkout", "--quiet", "--orphan", "other")
    repo.commit({"a.yaml": "x"})
    with pytest.raises(GitError, match="no common ancestor"):
        choose(repo)


def test_a_base_that_is_not_there(repo):
    repo.commit(TEXT)
    with pytest.raises(GitError, match='the base "nosuch" is no commit of this repository'):
        choose(repo, base="nosuch")


# -- pull requests -------------------------------------------------------------------------------------------------


def test_a_pull_request_s_merge_commit_has_the_base_as_its_first_parent(repo, merged, pull_request):
    base, head, _ = merged
    found, working = choose(repo, event=pull_request("0" * 40, head))
    assert (found.commit, found.how) == (base, "first parent of the merge commit of pull request 12")
    assert working.commit is None


def test_a_pull_request_whose_own_head_is_checked_out(repo, merged, pull_request):
    base, head, _ = merged
    repo.git("checkout", "--quiet", head)
    found, _ = choose(repo, event=pull_request(base, head))
    assert (found.commit, found.how) == (
        repo.git("rev-parse", "HEAD~1"), "merge base of pull request 12",
    )  # fmt: skip


def test_a_merge_inside_the_change_is_no_merge_of_the_pull_request(repo, merged, pull_request):
    """The head of the change is itself a merge commit: its first parent is not the base."""
    base, _, merge = merged
    found, _ = choose(repo, event=pull_request(base, merge))
    assert found.commit == base
    assert found.how == "merge base of pull request 12"


@pytest.mark.parametrize("depth", [1, 2])
def test_a_shallow_clone_of_a_pull_request(repo, merged, pull_request, tmp_path, depth):
    """What actions/checkout does: one ref at a depth. With 1, the parent is named in the commit and not there."""
    base, head, merge = merged
    repo.git("update-ref", "refs/pull/12/merge", merge)
    found = tmp_path / "runner"
    found.mkdir()
    repo.git("init", "--quiet", cwd=found)
    repo.git("remote", "add", "origin", repo.root.as_uri(), cwd=found)
    repo.git(
        "fetch", "--quiet", "--no-tags", f"--depth={depth}", "origin",
        f"+{merge}:refs/remotes/pull/12/merge", cwd=found,
    )  # fmt: skip
    repo.git("checkout", "--quiet", "--detach", "refs/remotes/pull/12/merge", cwd=found)
    if depth == 2:
        assert choose(repo, found, event=pull_request(base, head))[0].commit == base
        return
    with pytest.raises(GitError, match=r"set `fetch-depth: 2` in actions/checkout") as caught:
        choose(repo, found, event=pull_request(base, head))
    assert base[:12] in str(caught.value)
    repo.git("fetch", "--quiet", "--no-tags", "--depth=1", "origin", base, cwd=found)  # what the action does
    assert choose(repo, found, event=pull_request(base, head))[0].commit == base


def test_a_shallow_clone_without_a_common_ancestor(repo, merged, pull_request, tmp_path):
    base, head, _ = merged
    found = clone(repo, tmp_path, "--depth=1", "--branch=topic")
    with pytest.raises(GitError, match=r"fetch-depth: 0"):
        choose(repo, found, event=pull_request(base, head))
    with pytest.raises(GitError, match=r"fetch-depth: 0"):
        choose(repo, found, base="main")
    with pytest.raises(GitError, match=r"fetch-depth: 0"):
        choose(repo, found)


# -- merge queues, pushes, other systems ---------------------------------------------------------------------------


def test_a_merge_group(repo, merged):
    base, _, merge = merged
    found, _ = choose(repo, event=Event("merge_group", base=base, head=merge))
    assert (found.commit, found.how) == (base, "base of the merge group")


def test_a_push(repo, merged):
    base, _, merge = merged
    found, _ = choose(repo, event=Event("push", base=base, head=merge))
    assert (found.commit, found.how) == (base, "commit before the push")


def test_a_push_of_a_new_branch_is_compared_with_the_default_branch(repo, merged):
    _, _, merge = merged
    found, _ = choose(repo, event=Event("push", head=merge, default_branch="main"))
    assert found.how == "merge base with main"


def test_a_push_whose_before_is_gone(repo, merged):
    with pytest.raises(GitError, match=r"the base 111111111111 \(commit before the push\) .*fetch-depth: 0"):
        choose(repo, event=Event("push", base="1" * 40))


@pytest.mark.parametrize("name", ["schedule", "workflow_dispatch"])
def test_events_without_a_change(repo, merged, name):
    found, _ = choose(repo, event=Event(name, default_branch="main"))
    assert found.how == "merge base with main"


# -- reading the event ---------------------------------------------------------------------------------------------


def test_a_payload_of_a_pull_request():
    payload = {
        "number": 12,
        "pull_request": {
            "title": "kvgate/accept-capacity-drop", "base": {"sha": "a" * 40}, "head": {"sha": "b" * 40},
            "labels": [{"name": "bug"}, {"name": "kvgate/accept-capacity-drop"}, {"name": None}, "odd"],
        },
        "repository": {"default_branch": "trunk"},
    }  # fmt: skip
    event = read_event({"GITHUB_EVENT_NAME": "pull_request"}, json.dumps(payload))
    assert event == Event(
        "pull_request", "a" * 40, "b" * 40, 12, "trunk", frozenset({"bug", "kvgate/accept-capacity-drop"})
    )


@pytest.mark.parametrize("payload", [None, "", "[]", "{", "null", '{"pull_request": 3}', "[" * 100_000])
def test_a_payload_that_is_none(payload):
    event = read_event({"GITHUB_EVENT_NAME": "pull_request"}, payload)
    assert event == Event("pull_request")


def test_a_payload_of_a_push_and_of_a_merge_group():
    push = {"before": "0" * 40, "after": "b" * 40}
    assert read_event({"GITHUB_EVENT_NAME": "push"}, json.dumps(push)) == Event("push", None, "b" * 40)
    push["before"] = "a" * 40
    assert read_event({"GITHUB_EVENT_NAME": "push"}, json.dumps(push)) == Event("push", "a" * 40, "b" * 40)
    group = {"merge_group": {"base_sha": "a" * 40, "head_sha": "b" * 40}}
    assert read_event({"GITHUB_EVENT_NAME": "merge_group"}, json.dumps(group)) == Event(
        "merge_group", "a" * 40, "b" * 40
    )


def test_gitlab_and_nothing():
    environ = {
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": "a" * 40,
        "CI_MERGE_REQUEST_IID": "7",
        "CI_MERGE_REQUEST_LABELS": "x, y",
    }
    event = read_event(environ, None)
    assert event is not None
    assert (event.name, event.base, event.number, event.labels) == (
        "merge_request", "a" * 40, 7, frozenset({"x", "y"}),
    )  # fmt: skip
    assert read_event({}, None) is None
