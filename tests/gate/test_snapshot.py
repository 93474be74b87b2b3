"""Git objects to files: exactly the commit, nothing of the repository is run, nothing outside is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvgate.source import snapshot as module
from kvgate.source.snapshot import GitError, Repository, Snapshot

posix = pytest.mark.skipif(os.name == "nt", reason="links, pipes and hooks as on POSIX")


@pytest.fixture
def written(repo, tmp_path):
    """Writes HEAD, another commit, or the working tree (None) into a new folder."""
    count = 0

    def write(ref: str | None = "HEAD", **options) -> Snapshot:
        nonlocal count
        count += 1
        folder = tmp_path / f"snapshot{count}"
        folder.mkdir()
        found = Repository.find(repo.root, repo.environ)
        if ref is None:
            return found.write_working_tree(folder, **options)
        return found.write_commit(found.commit(ref), folder, **options)

    return write


def files(snapshot: Snapshot) -> dict[str, bytes]:
    return {
        path.relative_to(snapshot.folder).as_posix(): path.read_bytes()
        for path in sorted(snapshot.folder.rglob("*"))
        if path.is_file()
    }


def test_a_commit_as_it_was(repo, written):
    repo.commit({"a.yaml": "one\n", "deep/er/ü x.yaml": "two\n", "gone.yaml": "x"})
    repo.commit({"a.yaml": "changed\n", "gone.yaml": None})
    repo.write({"a.yaml": "uncommitted\n"})
    assert files(written("HEAD~1")) == {"a.yaml": b"one\n", "deep/er/ü x.yaml": b"two\n", "gone.yaml": b"x"}
    assert files(written("HEAD"))["a.yaml"] == b"changed\n"
    assert written("HEAD").commit == repo.git("rev-parse", "HEAD")


def test_the_working_tree_as_it_is(repo, written):
    repo.commit({"a.yaml": "one", "gone.yaml": "x", ".gitignore": "*.log\nignored/\n"})
    repo.write({"a.yaml": "two", "gone.yaml": None, "new.yaml": "new", "x.log": "x", "ignored/b.yaml": "x"})
    found = written(None)
    assert files(found) == {"a.yaml": b"two", "new.yaml": b"new", ".gitignore": b"*.log\nignored/\n"}
    assert found.commit is None


def test_nothing_of_the_repository_changes(repo, written):
    repo.commit({"a.yaml": "one"})
    before = {path: path.stat().st_mtime_ns for path in repo.root.rglob("*") if path.is_file()}
    written("HEAD")
    written(None)
    assert {path: path.stat().st_mtime_ns for path in repo.root.rglob("*") if path.is_file()} == before
    assert repo.git("worktree", "list").count("\n") == 0


def test_skip(repo, written):
    repo.commit({"a.yaml": "one", "b/c.yaml": "two"})
    assert list(files(written("HEAD", skip=lambda path: path.startswith("b/")))) == ["a.yaml"]
    assert list(files(written(None, skip=lambda path: path.startswith("b/")))) == ["a.yaml"]


# -- hostile repositories ------------------------------------------------------------------------------------------


@posix
def test_nothing_of_the_repository_runs(repo, written, tmp_path):
    """Hooks, filters, textconv, fsmonitor, an external diff and a pager: none is asked."""
    marker = tmp_path / "ran"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    script.chmod(0o755)
    repo.commit({"a.yaml": "one", ".gitattributes": "* filter=evil diff=evil\n"})
    for key in (
        "filter.evil.smudge", "filter.evil.clean", "filter.evil.process", "diff.evil.textconv", "diff.evil.command",
        "core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "diff.external", "core.askPass",
        "uploadpack.packObjectsHook",
    ):  # fmt: skip
        repo.git("config", key, str(script))
    hooks = repo.root / ".git" / "hooks"
    for name in ("post-checkout", "post-index-change", "pre-commit", "reference-transaction", "fsmonitor-watchman"):
        (hooks / name).write_text(script.read_text())
        (hooks / name).chmod(0o755)
    repo.write({"a.yaml": "changed", "new.yaml": "x"})
    repo.git("add", "a.yaml", check=False)
    assert marker.exists(), "an ordinary command runs them"
    marker.unlink()
    assert files(written("HEAD"))["a.yaml"] == b"one"
    assert files(written(None))["a.yaml"] == b"changed"
    assert not marker.exists()


@posix
def test_links_are_not_followed(repo, written, tmp_path):
    outside = tmp_path / "secret.yaml"
    outside.write_text("secret")
    (repo.root / "out.yaml").symlink_to(outside)
    (repo.root / "folder").symlink_to(tmp_path)
    (repo.root / "in.yaml").symlink_to("a.yaml")
    repo.commit({"a.yaml": "one"})
    for found in (written("HEAD"), written(None)):
        assert list(files(found)) == ["a.yaml"]
        assert found.left_out["out.yaml"] == found.left_out["in.yaml"] == "a symbolic link: not followed"


@posix
def test_a_folder_that_became_a_link_is_not_entered(repo, written, tmp_path):
    """git tracks deploy/a.yaml; in the working tree, deploy is a link to somewhere else."""
    repo.commit({"deploy/a.yaml": "one", "b.yaml": "two"})
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "a.yaml").write_text("secret")
    (repo.root / "deploy" / "a.yaml").unlink()
    (repo.root / "deploy").rmdir()
    (repo.root / "deploy").symlink_to(outside)
    found = written(None)
    assert files(found) == {"b.yaml": b"two"}
    assert found.left_out["deploy/a.yaml"] == "a symbolic link leads to it: not followed"


@posix
def test_a_pipe_is_not_waited_for(repo, written):
    repo.commit({"a.yaml": "one"})
    (repo.root / "a.yaml").unlink()
    os.mkfifo(repo.root / "a.yaml")
    assert files(written(None)) == {}


def test_submodules_are_not_read(repo, written, tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    repo.git("init", "--quiet", "--initial-branch=main", cwd=inner)
    (inner / "x.yaml").write_text("x")
    repo.git("add", ".", cwd=inner)
    repo.git("commit", "--quiet", "-m", "x", cwd=inner)
    repo.commit({"a.yaml": "one"})
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    repo.git("commit", "--quiet", "-m", "submodule")
    assert sorted(files(written("HEAD"))) == sorted(files(written(None))) == [".gitmodules", "a.yaml"]
    assert written("HEAD").left_out == {"sub": "a submodule: not read"}


def _raw_tree(repo, entries: list[tuple[str, bytes, str]]) -> str:
    """A commit of a tree that git itself would not make."""
    data = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries)
    result = subprocess.run(
        ["git", "hash-object", "-t", "tree", "-w", "--stdin", "--literally"], input=data, cwd=repo.root,
        env=repo.environ, capture_output=True, check=True,
    )  # fmt: skip
    return repo.git("commit-tree", result.stdout.decode().strip(), "-m", "evil")


@pytest.mark.parametrize("name", [b"..", b".", b".git", b".GIT", b"git~1", b"a/../../../escaped", b"/etc/passwd", b""])
def test_a_path_that_leads_out_is_not_written(repo, written, tmp_path, name):
    repo.commit({"a.yaml": "one"})
    blob = repo.git("rev-parse", "HEAD:a.yaml")
    if name in (b"..", b".", b".git", b".GIT", b"git~1"):
        inner = subprocess.run(
            ["git", "hash-object", "-t", "tree", "-w", "--stdin", "--literally"], cwd=repo.root, env=repo.environ,
            input=b"100644 config\0" + bytes.fromhex(blob), capture_output=True, check=True,
        ).stdout.decode().strip()  # fmt: skip
        entries = [("40000", name, inner), ("100644", b"ok.yaml", blob)]
    else:
        entries = [("100644", name, blob), ("100644", b"ok.yaml", blob)]
    commit = _raw_tree(repo, entries)
    before = {path for path in tmp_path.rglob("*") if "snapshot" not in path.as_posix() and ".git" not in path.parts}
    try:
        found = written(commit)
    except GitError:
        pass  # git itself refuses the tree
    else:
        assert set(files(found)) <= {"ok.yaml", "etc/passwd"}
    after = {path for path in tmp_path.rglob("*") if "snapshot" not in path.as_posix() and ".git" not in path.parts}
    assert before == after


@posix
def test_names_that_are_no_text(repo, written):
    repo.commit({"a.yaml": "one"})
    blob = repo.git("rev-parse", "HEAD:a.yaml")
    commit = _raw_tree(repo, [("100644", b"b\xff\n.yaml", blob), ("100644", b"new\nline.yaml", blob)])
    found = written(commit)
    assert list(files(found)) == ["new\nline.yaml"]
    assert found.left_out == {"b\\xff\\n.yaml": "its name is no UTF-8"}


def test_names_that_differ_in_case_only(repo, written, monkeypatch):
    """As a file system without case does it: the second one is left out, not written over the first."""
    repo.commit({"a.yaml": "one"})
    blob = repo.git("rev-parse", "HEAD:a.yaml")
    commit = _raw_tree(repo, [("100644", b"A.yaml", blob), ("100644", b"a.yaml", blob)])
    place = module._Writer.place
    monkeypatch.setattr(module._Writer, "place", lambda self, path: place(self, path.lower()))
    found = written(commit)
    assert list(files(found)) == ["a.yaml"]
    assert "case" in found.left_out["a.yaml"]


def test_sizes_are_bounded(repo, written, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 1000)
    repo.commit({"a.yaml": "x" * 1001, "b.yaml": "x" * 1000})
    for found in (written("HEAD"), written(None)):
        assert list(files(found)) == ["b.yaml"]
        assert found.left_out["a.yaml"].startswith("a file of 0 MB is not read")
    monkeypatch.setattr(module, "MAX_TOTAL_BYTES", 999)
    with pytest.raises(GitError, match="the tree is larger than"):
        written("HEAD")
    monkeypatch.setattr(module, "MAX_FILES", 1)
    with pytest.raises(GitError, match="more than 1 files"):
        written(None)


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "-h",
        "--all",
        "--output=/tmp/x",
        "HEAD:a.yaml",
        ":/evil",
        "a\nb",
        "x" * 5000,
        "HEAD\x00",
        "$(touch x)",
        "; ls",
    ],
)
def test_what_is_no_revision(repo, ref):
    repo.commit({"a.yaml": "one"})
    with pytest.raises(GitError, match=r"no revision|no commit"):
        Repository.find(repo.root, repo.environ).commit(ref)
    assert sorted(path.name for path in repo.root.iterdir()) == [".git", "a.yaml"]


def test_the_caller_s_git_variables_do_not_count(repo, written, tmp_path):
    repo.commit({"a.yaml": "one"})
    repo.environ = {
        **repo.environ, "GIT_DIR": str(tmp_path / "nowhere"), "GIT_INDEX_FILE": str(tmp_path / "no-index"),
        "GIT_WORK_TREE": "/", "GIT_OBJECT_DIRECTORY": "/nowhere", "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.bare", "GIT_CONFIG_VALUE_0": "true", "GIT_EXEC_PATH": "/nowhere",
    }  # fmt: skip
    assert files(written("HEAD")) == files(written(None)) == {"a.yaml": b"one"}


def test_replaced_objects_do_not_count(repo, written):
    old = repo.commit({"a.yaml": "one"})
    new = repo.commit({"a.yaml": "evil"})
    repo.git("replace", old, new)
    assert files(written(old)) == {"a.yaml": b"one"}


def test_no_repository(tmp_path, repo):
    outside = tmp_path / "outside"
    outside.mkdir()
    with pytest.raises(GitError, match="is in no git working tree"):
        Repository.find(outside, repo.environ)


def test_no_git(repo, tmp_path):
    with pytest.raises(GitError, match="git is not installed"):
        Repository.find(repo.root, {**repo.environ, "PATH": str(tmp_path)})


@posix
def test_a_git_of_the_repository_is_not_run(repo, monkeypatch):
    evil = repo.root / "git"
    evil.write_text("#!/bin/sh\ntouch ran\n")
    evil.chmod(0o755)
    monkeypatch.chdir(repo.root)
    path = os.pathsep.join([".", "", repo.environ["PATH"]])
    Repository.find(Path(), {**repo.environ, "PATH": path})
    assert not (repo.root / "ran").exists()


@posix
def test_an_untrusted_owner_gets_a_clear_line(repo, tmp_path):
    """What git says of a repository of somebody else's is passed on as what to do."""
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "git").write_text(
        f"#!{sys.executable}\nimport sys\n"
        "print(\"fatal: detected dubious ownership in repository at '/x'\", file=sys.stderr)\nsys.exit(128)\n"
    )
    (fake / "git").chmod(0o755)
    with pytest.raises(GitError, match=r"git config --global --add safe\.directory") as caught:
        Repository.find(repo.root, {**repo.environ, "PATH": str(fake)})
    assert str(caught.value).count("\n") == 0


def test_a_partial_clone_without_the_objects_is_said_and_fetches_nothing(repo, tmp_path):
    repo.commit({"a.yaml": "one"})
    repo.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "partial"
    repo.git(
        "clone", "--quiet", "--filter=blob:none", "--no-checkout", repo.root.as_uri(), str(clone),
        cwd=tmp_path,
    )  # fmt: skip
    found = Repository.find(clone, repo.environ)
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(GitError):
        found.write_commit(found.commit("HEAD"), folder)
    missing = repo.git("rev-list", "--objects", "--all", "--missing=print", cwd=clone)
    assert "?" in missing, "the blob is still missing: nothing was fetched"


def test_a_sparse_checkout_keeps_what_it_does_not_show(repo, written):
    repo.commit({"a/x.yaml": "one", "b/y.yaml": "two"})
    repo.git("sparse-checkout", "set", "a")
    assert not (repo.root / "b").exists()
    assert files(written(None)) == {"a/x.yaml": b"one", "b/y.yaml": b"two"}


def test_a_linked_worktree_is_a_repository_too(repo, tmp_path):
    repo.commit({"a.yaml": "one"})
    repo.git("worktree", "add", "--quiet", str(tmp_path / "linked"), "-b", "topic")
    assert Repository.find(tmp_path / "linked", repo.environ).top == (tmp_path / "linked").resolve()


def test_objects_in_a_repository_with_sha256(repo, tmp_path):
    other = tmp_path / "sha256"
    other.mkdir()
    repo.git("init", "--quiet", "--object-format=sha256", "--initial-branch=main", cwd=other)
    (other / "a.yaml").write_text("one")
    repo.git("add", ".", cwd=other)
    repo.git("commit", "--quiet", "-m", "x", cwd=other)
    found = Repository.find(other, repo.environ)
    folder = tmp_path / "out"
    folder.mkdir()
    assert len(found.commit("HEAD")) == 64
    assert files(found.write_commit(found.commit("HEAD"), folder)) == {"a.yaml": b"one"}


def test_what_a_reader_takes_is_of_interest():
    from kvgate.gate.state import _OF_NO_INTEREST, is_of_no_interest
    from kvgate.manifests.formats import format_of_name
    from kvgate.prompt_files import SUFFIXES
    from kvgate.ruleset.scene import BESIDE_SUFFIXES

    assert {suffix for suffix in _OF_NO_INTEREST if format_of_name(f"a{suffix}") is not None} == set()
    assert not _OF_NO_INTEREST & (SUFFIXES | BESIDE_SUFFIXES)
    for name in (".kvgate/models/a__b/config.json", "deploy/.env", "values.yaml.j2", "args.txt", "run", ".gitignore"):
        assert not is_of_no_interest(name)
    assert is_of_no_interest("web/logo.PNG")
    assert is_of_no_interest("releases/llm-1.0.0.tgz")
    assert not is_of_no_interest("deploy/llm/charts/vllm-0.1.0.tgz")  # a dependency that Helm renders
    assert is_of_no_interest("web/node_modules/x/deploy.yaml")
