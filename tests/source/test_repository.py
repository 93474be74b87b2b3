"""What git keeps, read from its index without git; git itself is the oracle."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.source.repository import Repository, _paths, _varint, repository_of

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle here")


def git(folder: Path, *words: str) -> str:
    settings = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *settings, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def filled(folder: Path) -> None:
    for number in range(40):
        place = folder / f"deploy/team-{number % 7}/{'long-' * (number % 5)}name-{number}.yaml"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(str(number))
    (folder / "ünïcode.yaml").write_text("")
    (folder / ("d" * 200) / ("e" * 200)).mkdir(parents=True)
    (folder / ("d" * 200) / ("e" * 200) / ("f" * 200)).write_text("")


@needs_git
@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("names", ["sha1", "sha256"])
def test_the_paths_are_those_that_git_lists(tmp_path: Path, version: str, names: str) -> None:
    try:
        git(tmp_path, "init", "-q", f"--object-format={names}")
    except subprocess.CalledProcessError:
        pytest.skip("this git has no such names")
    filled(tmp_path)
    git(tmp_path, "add", "-A")
    (tmp_path / "later.yaml").write_text("")
    git(tmp_path, "add", "--intent-to-add", "later.yaml")  # an extended entry
    git(tmp_path, "update-index", f"--index-version={version}")
    listed = git(tmp_path, "ls-files", "-z").split("\0")[:-1]
    raw = (tmp_path / ".git/index").read_bytes()
    assert _paths(raw, 20 if names == "sha1" else 32) == listed
    repository = Repository(tmp_path)
    assert all(repository.tracks(path) for path in listed)
    assert repository.tracks("deploy/team-3", is_directory=True)
    assert not repository.tracks("deploy/team-3")
    assert not repository.tracks("deploy/team", is_directory=True)
    assert not repository.tracks("deploy/team-3/name-3.yam")


@needs_git
def test_a_worktree_and_a_subfolder(tmp_path: Path) -> None:
    main = tmp_path / "main"
    main.mkdir()
    git(main, "init", "-q")
    (main / "a.yaml").write_text("")
    git(main, "add", "-A")
    git(main, "commit", "-qm", "x")
    git(main, "worktree", "add", "-q", str(tmp_path / "other"))
    (main / ".git/info").mkdir(exist_ok=True)
    (main / ".git/info/exclude").write_text("*.local.yaml\n")
    (tmp_path / "other/sub").mkdir()
    found = repository_of(tmp_path / "other/sub")
    assert found is not None
    assert found.root == tmp_path / "other"
    assert found.tracks("a.yaml")
    assert found.excluded() == ["*.local.yaml"]


def test_no_repository_and_none_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    repository = repository_of(tmp_path)
    assert repository is not None
    assert not repository.tracks("a.yaml")
    assert repository.excluded() == []
    (tmp_path / ".git/index").write_bytes(b"DIRC" + b"\0\0\0\2" + b"\0\0\0\1")
    assert not Repository(tmp_path).tracks("a.yaml")
    (tmp_path / ".git/index").write_bytes(b"DIRC" + b"\0\0\0\4")  # cut off in its header
    assert not Repository(tmp_path).tracks("a")


@given(st.binary(max_size=400), st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_any_bytes_are_read_to_some_end(body: bytes, version: int, count: int) -> None:
    raw = b"DIRC" + version.to_bytes(4, "big") + count.to_bytes(4, "big") + body
    assert all(isinstance(path, str) for path in _paths(raw, 20))


def test_a_number_of_version_4() -> None:
    # git's offset encoding: 0x80 0x00 is 128, one more than 0x7F
    assert _varint(b"\x7f", 0) == (127, 1)
    assert _varint(b"\x80\x00", 0) == (128, 2)
    assert _varint(b"\x81\x00", 0) == (256, 2)
