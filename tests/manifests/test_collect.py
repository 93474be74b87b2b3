"""Which files a run reads, and why it leaves others out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvgate.manifests.collect import MAX_FILE_BYTES, Collection, collect


def write(root: Path, *paths: str, text: str = "a: 1\n") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def shown(collection: Collection) -> list[str]:
    return [file.path for file in collection.files]


def reasons(collection: Collection) -> dict[str, str]:
    return {item.path: item.reason for item in collection.left_out}


def test_a_directory_is_walked_in_order(tmp_path: Path) -> None:
    write(
        tmp_path, "b.yml", "a/z.yaml", "a/b/c.YAML", "readme.md", ".git/x.yaml", "node_modules/x.yaml", ".hidden/y.yaml"
    )
    found = collect([tmp_path], tmp_path)
    assert shown(found) == [".hidden/y.yaml", "a/b/c.YAML", "a/z.yaml", "b.yml"]
    assert found.left_out == ()
    assert found.files[0].text == "a: 1\n"


def test_paths_are_shown_relative_to_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "deploy/a.yaml")
    monkeypatch.chdir(tmp_path / "deploy")
    assert shown(collect(["a.yaml", "."], tmp_path)) == ["deploy/a.yaml"]
    assert shown(collect([Path("../deploy")], tmp_path)) == ["deploy/a.yaml"]


def test_a_named_file_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    write(tmp_path, "Composefile", "vendor/a.yaml")
    assert shown(collect([tmp_path / "Composefile"], tmp_path)) == ["Composefile"]
    assert shown(collect([tmp_path / "vendor/a.yaml"], tmp_path, exclude=["vendor/**"])) == ["vendor/a.yaml"]


@pytest.mark.parametrize(
    "name", ["Dockerfile-gpu", "llm_Dockerfile", "Makefile_local", "gpu-Makefile.in", "Containerfile-x"]
)
def test_names_that_carry_something_of_their_own(tmp_path: Path, name: str) -> None:
    write(tmp_path, f"docker/{name}", text="# of vllm\n")
    write(tmp_path, "docker/notes-on-a-makefile-x", "docker/dockerfiles", text="# of vllm\n")
    assert shown(collect([tmp_path], tmp_path)) == [f"docker/{name}"]


def test_json_is_read_where_it_may_be_a_manifest(tmp_path: Path) -> None:
    write(tmp_path, "package.json", text='{"name": "vllm-ui"}')
    write(tmp_path, "pod.json", text='{"kind": "Pod", "spec": {"containers": [{"image": "vllm/vllm-openai"}]}}')
    write(tmp_path, "hired.json", text='{"imageName": "vllm/vllm-openai:v0.9.0", "dockerArgs": "--model org/m"}')
    write(tmp_path, "ui/package.json", text='{"scripts": {"llm": "vllm serve org/m"}}')
    write(tmp_path, "ui/pixi.toml", text='[tasks]\nllm = "vllm serve org/m"\n')
    write(tmp_path, "ui/Cargo.toml", text='[package]\nname = "x"\n')
    found = collect([tmp_path], tmp_path)
    assert shown(found) == ["hired.json", "pod.json", "ui/package.json", "ui/pixi.toml"]
    assert found.named == frozenset()
    named = collect([tmp_path / "package.json"], tmp_path)
    assert shown(named) == ["package.json"]
    assert named.named == {"package.json"}


def test_scripts_that_run_compose_are_read(tmp_path: Path) -> None:
    (tmp_path / "up.sh").write_text("export MODEL=org/m\ndocker compose up -d\n")
    (tmp_path / "env.sh").write_text("docker compose --env-file big.env up\n")
    (tmp_path / "build.sh").write_text("docker build .\n")
    found = collect([tmp_path], tmp_path)
    assert shown(found) == ["env.sh", "up.sh"]


def test_a_missing_path_is_told(tmp_path: Path) -> None:
    found = collect([tmp_path / "absent", tmp_path], tmp_path)
    assert found.missing == (str(tmp_path / "absent"),)


def test_exclude_and_gitignore(tmp_path: Path) -> None:
    write(tmp_path, "vendor/a.yaml", "b.yaml", "gen/c.yaml", "gen/keep.yaml", "d/out/e.yaml", "d/f.yaml")
    (tmp_path / ".gitignore").write_text("gen/*\n!gen/keep.yaml\n")
    (tmp_path / "d/.gitignore").write_text("out/\n")
    assert shown(collect([tmp_path], tmp_path, exclude=["vendor/**"])) == ["b.yaml", "d/f.yaml", "gen/keep.yaml"]


def test_gitignore_of_the_repository_above_counts(tmp_path: Path) -> None:
    write(tmp_path, "deploy/a.yaml", "deploy/secret.yaml")
    (tmp_path / ".gitignore").write_text("/deploy/secret.yaml\n")
    assert shown(collect([tmp_path / "deploy"], tmp_path)) == ["deploy/a.yaml", "deploy/secret.yaml"]
    (tmp_path / ".git").mkdir()
    assert shown(collect([tmp_path / "deploy"], tmp_path)) == ["deploy/a.yaml"]


def test_large_files_are_left_out_unread(tmp_path: Path) -> None:
    write(tmp_path, "ok.yaml")
    with (tmp_path / "big.yaml").open("wb") as file:
        file.truncate(200_000_000)
    for paths in ([tmp_path], [tmp_path / "big.yaml", tmp_path / "ok.yaml"]):
        found = collect(paths, tmp_path)
        assert shown(found) == ["ok.yaml"]
        assert reasons(found) == {"big.yaml": "a file of 200 MB is not read (limit 5 MB)"}
    assert MAX_FILE_BYTES == 5_000_000


def test_code_of_a_directory_is_taken_where_it_may_serve(tmp_path: Path) -> None:
    write(tmp_path, "a.py", text="from ray.serve.llm import LLMConfig\n")
    write(tmp_path, "b.py", text="import vllm\n")
    write(tmp_path, "c.py", text="import ray\n")
    assert shown(collect([tmp_path], tmp_path)) == ["a.py", "b.py"]


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\x00\xff\xfe\x01")
    (tmp_path / "latin.yaml").write_bytes("a: é\n".encode("latin-1"))
    (tmp_path / "utf16.yaml").write_bytes("a: é\n".encode("utf-16"))
    (tmp_path / "nul.yaml").write_bytes(b"a: \x00\n")
    found = collect([tmp_path], tmp_path)
    assert shown(found) == ["utf16.yaml"]
    assert reasons(found) == {"latin.yaml": "neither UTF-8 nor UTF-16 text", "nul.yaml": "a binary file"}
    assert reasons(collect([tmp_path / "binary.yaml"], tmp_path)) == {"binary.yaml": "a binary file"}


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need rights there")
def test_links(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    write(inside, "a.yaml", "sub/b.yaml")
    write(outside, "c.yaml", "dir/d.yaml")
    (inside / "loop").symlink_to(inside)
    (inside / "sub/up").symlink_to(inside)
    (inside / "same.yaml").symlink_to(inside / "a.yaml")
    (inside / "away.yaml").symlink_to(outside / "c.yaml")
    (inside / "awaydir").symlink_to(outside / "dir")
    (inside / "dangling.yaml").symlink_to(inside / "nothing")
    found = collect([inside], inside)
    assert shown(found) == ["a.yaml", "same.yaml", "sub/b.yaml"]
    assert reasons(found)["away.yaml"] == "a link that leads out of the directory"
    assert "cannot be read" in reasons(found)["dangling.yaml"]
    assert "awaydir/d.yaml" not in reasons(found)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the superuser reads everything")
def test_unreadable_files(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml")
    (tmp_path / "a.yaml").chmod(0)
    assert reasons(collect([tmp_path], tmp_path)) == {"a.yaml": "cannot be read: permission denied"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    assert reasons(collect([tmp_path], tmp_path)) == {"pipe.yaml": "no regular file"}


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="makes a repository")


def git(folder: Path, *words: str) -> None:
    settings = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", "-C", str(folder), *settings, *words], check=True, capture_output=True)


@needs_git
def test_what_git_keeps_is_read_whatever_is_ignored(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write(tmp_path, "deploy/.gitignore", text="*.gen.yaml\nout/\n!kept.gen.yaml\n")
    write(
        tmp_path,
        "deploy/a.gen.yaml",
        "deploy/b.gen.yaml",
        "deploy/kept.gen.yaml",
        "deploy/out/c.yaml",
        "deploy/out/d.yaml",
    )
    write(tmp_path, "new.yaml", "mine.local.yaml")
    (tmp_path / ".git/info").mkdir(exist_ok=True)
    (tmp_path / ".git/info/exclude").write_text("*.local.yaml\n")
    git(tmp_path, "add", "-f", "deploy/b.gen.yaml", "deploy/out/d.yaml")
    expected = ["deploy/b.gen.yaml", "deploy/kept.gen.yaml", "deploy/out/d.yaml", "new.yaml"]
    assert shown(collect([tmp_path], tmp_path)) == expected
    assert shown(collect([tmp_path / "deploy"], tmp_path)) == expected[:3]
    # as git says it
    command = ["git", "-C", str(tmp_path), "ls-files", "--cached", "--others", "--exclude-standard", "*.yaml"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert sorted(listed) == expected


@needs_git
def test_a_submodule_is_left_out_with_its_reason(tmp_path: Path) -> None:
    other = tmp_path / "other"
    write(other, "a.yaml")
    git(other, "init", "-q")
    git(other, "add", "-A")
    git(other, "commit", "-qm", "x")
    main = tmp_path / "main"
    write(main, "b.yaml")
    git(main, "init", "-q")
    git(main, "submodule", "add", "-q", str(other), "vendor/other")
    found = collect([main], main)
    assert shown(found) == ["b.yaml"]
    assert reasons(found) == {"vendor/other": "a submodule or another worktree: a repository of its own"}
    # where it is named it is what is meant
    assert shown(collect([main / "vendor/other"], main)) == ["vendor/other/a.yaml"]
    # a folder of checkouts is no repository
    assert shown(collect([tmp_path], tmp_path)) == ["main/b.yaml", "main/vendor/other/a.yaml", "other/a.yaml"]
