"""The files of a commit, or of a working tree, written into a folder of their own.

Everything is read from git's objects with plumbing commands that run nothing of the repository: no checkout, no
worktree, no hooks, no filters, no textconv, no lazy fetching. Submodules and symbolic links are not followed. The
environment that git sees is made here, so that ``GIT_*`` variables of the caller change nothing.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from kvgate.errors import KvgateError
from kvgate.records import record

MAX_FILE_BYTES: Final = 16_000_000
MAX_FILES: Final = 500_000
MAX_TOTAL_BYTES: Final = 2_000_000_000
MAX_COMMIT_BYTES: Final = 1_000_000
MAX_NAME_BYTES: Final = 4_096
COMMAND_SECONDS: Final = 120

# What git needs of the caller's environment: to be found, and to find its owner's configuration (safe.directory).
_ENVIRONMENT: Final = (
    "PATH", "HOME", "XDG_CONFIG_HOME", "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "SYSTEMROOT", "WINDIR", "PATHEXT",
    "TEMP", "TMP", "TMPDIR",
)  # fmt: skip
_FIXED: Final = {
    "LC_ALL": "C",
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone must not fetch
    "GIT_ASKPASS": "",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "",
    "GIT_TERMINAL_PROMPT": "0",
}
_SETTINGS: Final = ("core.fsmonitor=false", f"core.hooksPath={os.devnull}", "core.untrackedCache=false")

_OBJECT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_WINDOWS_DEVICE: Final = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)
_GIT_NAMES: Final = frozenset({".git", "git~1"})
_REGULAR: Final = frozenset({"100644", "100755", "100664"})


class GitError(KvgateError):
    """The repository, or a commit in it, cannot be read; the message says what to do."""


@record
class Snapshot:
    """Files of one state of a tree below ``folder``.

    Attributes:
        commit: full object name, None for a working tree.
        left_out: path -> why it was not written.
    """

    folder: Path
    commit: str | None
    left_out: Mapping[str, str]


@record
class _Entry:
    path: str
    mode: str
    oid: str
    size: int | None


class Repository:
    """A git working tree.

    Args:
        top: its root, resolved.
        environ: the caller's environment; only what git needs of it is handed on.
    """

    def __init__(self, top: Path, environ: Mapping[str, str]) -> None:
        self.top = top
        self._environ = environ

    @classmethod
    def find(cls, start: Path, environ: Mapping[str, str]) -> Repository:
        """The repository that holds ``start``.

        Raises:
            GitError: there is none, git is not installed, or git does not trust its owner.
        """
        probe = cls(start.resolve(), environ)
        top = probe._text("rev-parse", "--show-toplevel").rstrip("\r\n")
        if not top:
            raise GitError(f"{start}: a bare repository has no working tree to compare")
        return cls(Path(top).resolve(), environ)

    # -- commits ---------------------------------------------------------------------------------------------------

    def commit(self, ref: str) -> str:
        """The full object name of the commit that a revision stands for.

        Raises:
            GitError: it is none.
        """
        oid = self.find_commit(ref)
        if oid is None:
            hint = "; this clone is shallow, fetch more of it" if self.is_shallow() else ""
            raise GitError(f'"{_shown(ref)}" is no commit of this repository{hint}')
        return oid

    def find_commit(self, ref: str) -> str | None:
        """The full object name of a revision, None where this clone has no such commit.

        Raises:
            GitError: the text cannot be a revision.
        """
        if not ref or ref.startswith("-") or len(ref) > MAX_NAME_BYTES or not ref.isprintable() or ":" in ref:
            raise GitError(f'"{_shown(ref)}" is no revision')
        result = self._run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        oid = result.stdout.decode("ascii", "replace").strip()
        return oid if result.returncode == 0 and _OBJECT.fullmatch(oid) else None

    def parents(self, commit: str) -> tuple[str, ...]:
        """The parents that a commit names, whether or not a shallow clone has them.

        Raises:
            GitError: it cannot be read.
        """
        text = self._output("cat-file", "commit", commit)
        if len(text) > MAX_COMMIT_BYTES:
            raise GitError(f"the commit {commit[:12]} is larger than {MAX_COMMIT_BYTES:,} bytes")
        head = text.split(b"\n\n", 1)[0].decode("utf-8", "replace")
        return tuple(re.findall(r"^parent ([0-9a-f]{40,64})$", head, re.MULTILINE))

    def merge_base(self, one: str, other: str) -> str | None:
        """The best common ancestor of two commits, None where this clone knows none."""
        result = self._run("merge-base", one, other)
        oid = result.stdout.decode("ascii", "replace").split("\n", 1)[0].strip()
        return oid if result.returncode == 0 and _OBJECT.fullmatch(oid) else None

    def is_shallow(self) -> bool:
        """Whether history was cut off when this clone was made."""
        return self._run("rev-parse", "--is-shallow-repository").stdout.strip() == b"true"

    def default_branch(self) -> str | None:
        """The branch that work is merged into, as a reference of this clone; None where none can be told."""
        head = self._run("symbolic-ref", "--quiet", "refs/remotes/origin/HEAD")
        names = [head.stdout.decode("utf-8", "replace").strip()] if head.returncode == 0 else []
        names += [f"refs/{place}/{name}" for place in ("remotes/origin", "heads") for name in ("main", "master")]
        return next((name for name in names if name and self.find_commit(name)), None)

    # -- files -----------------------------------------------------------------------------------------------------

    def write_commit(self, commit: str, folder: Path, *, skip: Callable[[str], bool] = lambda path: False) -> Snapshot:
        """Write the files of a commit.

        Args:
            commit: full object name.
            folder: an empty folder.
            skip: whether a path is of no interest.

        Raises:
            GitError: the tree cannot be read, or is beyond all bounds.
        """
        left_out: dict[str, str] = {}
        with _Writer(folder, left_out) as writer, self._objects() as objects:
            for entry in self._tree(commit, left_out):
                if skip(entry.path) or not _regular(entry, left_out):
                    continue
                if entry.size is not None and entry.size > MAX_FILE_BYTES:
                    left_out[entry.path] = _too_large(entry.size)
                elif writer.place(entry.path) is not None:
                    writer.write(entry.path, objects.read(entry))
        return Snapshot(folder, commit, left_out)

    def write_working_tree(self, folder: Path, *, skip: Callable[[str], bool] = lambda path: False) -> Snapshot:
        """Write the files of the working tree that git tracks or would add, as they are now.

        Raises:
            GitError: see :meth:`write_commit`.
        """
        left_out: dict[str, str] = {}
        with _Writer(folder, left_out) as writer, self._objects() as objects:
            plain: dict[Path, bool] = {}
            for entry, sparse in self._index(left_out):
                if skip(entry.path) or writer.place(entry.path) is None:
                    continue
                data = _read_plain(self.top, entry.path, plain, left_out)
                if data is None and sparse and entry.path not in left_out and _regular(entry, left_out):
                    data = objects.read(entry)  # a sparse checkout has no file for it
                if data is not None:
                    writer.write(entry.path, data)
        return Snapshot(folder, None, left_out)

    def _tree(self, commit: str, left_out: dict[str, str]) -> Iterator[_Entry]:
        output = self._output("ls-tree", "-r", "-z", "-l", "--full-tree", commit)
        for line in _lines(output):
            meta, _, name = line.partition(b"\t")
            fields = meta.decode("ascii", "replace").split()
            path = _decoded(name, left_out)
            if path is None or len(fields) != 4:
                continue
            mode, _, oid, size = fields
            yield _Entry(path, mode, oid, int(size) if size.isdigit() else None)

    def _index(self, left_out: dict[str, str]) -> Iterator[tuple[_Entry, bool]]:
        """Tracked files, each with whether a sparse checkout leaves it out, and files that git would add."""
        seen: set[str] = set()
        for line in _lines(self._output("ls-files", "-z", "-t", "--stage")):
            meta, _, name = line.partition(b"\t")
            fields = meta.decode("ascii", "replace").split()
            path = _decoded(name, left_out)
            if path is None or len(fields) != 4 or path in seen:
                continue
            seen.add(path)
            if fields[1] == "160000":
                continue
            yield _Entry(path, fields[1], fields[2], None), fields[0] == "S"
        for name in _lines(self._output("ls-files", "-z", "--others", "--exclude-standard")):
            path = _decoded(name, left_out)
            if path is not None and not path.endswith("/"):
                yield _Entry(path, "100644", "", None), False

    # -- git itself ------------------------------------------------------------------------------------------------

    def _objects(self) -> _Objects:
        return _Objects([*self._command(), "cat-file", "--batch"], self.top, self._variables())

    def _command(self) -> list[str]:
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        return [git_program(self._environ), "--no-pager", *settings]

    def _variables(self) -> dict[str, str]:
        kept = {name: self._environ[name] for name in _ENVIRONMENT if name in self._environ}
        return {**kept, **_FIXED}

    def _run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        try:
            result = subprocess.run(  # noqa: S603 - git by its full path, with words made here
                [*self._command(), *words],
                cwd=self.top,
                env=self._variables(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=COMMAND_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise GitError(f"git {words[0]} did not end within {COMMAND_SECONDS} seconds") from None
        except OSError as error:
            raise GitError(f"git cannot be started in {self.top}: {error.strerror or error}") from None
        if result.returncode == 128:
            self._explain(result.stderr.decode("utf-8", "replace"))
        return result

    def _explain(self, words: str) -> None:
        """Raise for what no command of this repository can get over."""
        if "dubious ownership" in words:
            raise GitError(
                f"git does not read {self.top}, since it belongs to another user; if it is yours, run "
                f"`git config --global --add safe.directory {self.top.as_posix()}`"
            )
        if "not a git repository" in words.lower() or "must be run in a work tree" in words:
            raise GitError(f"{self.top} is in no git working tree, so there is nothing to compare with")

    def _output(self, *words: str) -> bytes:
        result = self._run(*words)
        if result.returncode:
            said = result.stderr.decode("utf-8", "replace").strip().splitlines()
            reason = _shown(said[-1]) if said else f"exit code {result.returncode}"
            partial = "; this is a partial clone, fetch the objects first" if "missing" in reason else ""
            raise GitError(f"git {words[0]}: {reason}{partial}")
        return result.stdout

    def _text(self, *words: str) -> str:
        return self._output(*words).decode("utf-8", "surrogateescape")


class _Objects:
    """One ``git cat-file --batch`` process: blobs by object name, one after the other."""

    def __init__(self, command: Sequence[str], top: Path, variables: Mapping[str, str]) -> None:
        self._command = command
        self._top = top
        self._variables = variables
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _Objects:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - git by its full path, with words made here
                self._command,
                cwd=self._top,
                env=self._variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def read(self, entry: _Entry) -> bytes:
        """The bytes of a blob.

        Raises:
            GitError: this clone does not have it, or it is no blob.
        """
        try:
            ask, answer = self._pipes()
            ask.write(entry.oid.encode("ascii") + b"\n")
            ask.flush()
            fields = answer.readline(300).split()
            if len(fields) == 3 and fields[1] == b"blob":
                data = answer.read(int(fields[2]))
                if len(data) == int(fields[2]) and answer.read(1) == b"\n":
                    return data
        except OSError as error:
            raise GitError(f"git ended while it read {_shown(entry.path)}: {error.strerror or error}") from None
        raise GitError(
            f"git has no contents for {_shown(entry.path)}: the clone is partial or damaged; fetch it without a filter"
        )


class _Writer:
    """Writes files below a folder: plain names only, nothing twice, within bounds."""

    def __init__(self, folder: Path, left_out: dict[str, str]) -> None:
        self._folder = folder
        self._left_out = left_out
        self._folders: set[str] = set()
        self._files = 0
        self._bytes = 0

    def __enter__(self) -> _Writer:
        # where searches upwards end: for kvgate.yaml, and for .gitignore files
        (self._folder / ".git").mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        return

    def place(self, path: str) -> Path | None:
        """Where a path goes; None, with a reason in ``left_out``, for one that no file system should be asked for."""
        parts = path.split("/")
        if all(_plain_name(part) for part in parts):
            return self._folder.joinpath(*parts)
        self._left_out[_shown(path)] = "a path that cannot be written here"
        return None

    def write(self, path: str, data: bytes) -> None:
        if len(data) > MAX_FILE_BYTES:
            self._left_out[path] = _too_large(len(data))
            return
        self._files += 1
        self._bytes += len(data)
        if self._files > MAX_FILES or self._bytes > MAX_TOTAL_BYTES:
            raise GitError(f"the tree is larger than {MAX_FILES:,} files or {MAX_TOTAL_BYTES:,} bytes")
        place = self.place(path)
        assert place is not None
        try:
            parent = path.rpartition("/")[0]
            if parent not in self._folders:
                place.parent.mkdir(parents=True, exist_ok=True)
                self._folders.add(parent)
            with place.open("xb") as file:
                file.write(data)
        except FileExistsError:
            self._left_out[path] = "its name differs from another one's in case only"
        except OSError as error:
            self._left_out[path] = f"cannot be written: {(error.strerror or str(error)).lower()}"


def _plain_name(name: str) -> bool:
    if name in ("", ".", "..") or name.lower() in _GIT_NAMES or "\0" in name or len(name) > 255:
        return False
    if os.name != "nt":
        return True
    return not (set(name) & set('<>:"\\|?*') or name.endswith((".", " ")) or _WINDOWS_DEVICE.fullmatch(name))


def _regular(entry: _Entry, left_out: dict[str, str]) -> bool:
    if entry.mode in _REGULAR:
        return True
    if entry.mode == "120000":
        left_out[entry.path] = "a symbolic link: not followed"
    elif entry.mode == "160000":
        left_out[entry.path] = "a submodule: not read"
    return False


def _read_plain(top: Path, path: str, plain: dict[Path, bool], left_out: dict[str, str]) -> bytes | None:
    """A regular file of the working tree that no link leads to; None where there is none."""
    place = top.joinpath(*path.split("/"))
    folder = place.parent
    if folder not in plain:
        plain[folder] = os.path.realpath(folder) == str(folder)
    if not plain[folder]:
        left_out[path] = "a symbolic link leads to it: not followed"
        return None
    try:
        # non-blocking, because a pipe would wait for a writer for ever
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        status = place.lstat()
        if stat.S_ISLNK(status.st_mode):
            left_out[path] = "a symbolic link: not followed"
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > MAX_FILE_BYTES:
            left_out[path] = _too_large(status.st_size)
            return None
        with os.fdopen(os.open(place, flags), "rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        left_out[path] = f"cannot be read: {(error.strerror or str(error)).lower()}"
        return None


def _too_large(size: int) -> str:
    return f"a file of {size / 1e6:,.0f} MB is not read (limit {MAX_FILE_BYTES / 1e6:.0f} MB)"


def _lines(output: bytes) -> list[bytes]:
    lines = [line for line in output.split(b"\0") if line]
    if len(lines) > MAX_FILES:
        raise GitError(f"the tree has more than {MAX_FILES:,} files")
    return lines


def _decoded(name: bytes, left_out: dict[str, str]) -> str | None:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        left_out[_shown(name.decode("utf-8", "backslashreplace"))] = "its name is no UTF-8"
        return None


def _shown(text: str) -> str:
    """Text of the repository in a message: printable, and not endless."""
    plain = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return plain if len(plain) <= 200 else plain[:199] + "…"


def git_program(environ: Mapping[str, str]) -> str:
    """git's full path: relative entries of PATH, and so the repository's own folder, are never looked at.

    Raises:
        GitError: it is not installed.
    """
    names = ["git.exe"] if os.name == "nt" else ["git"]
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        if not os.path.isabs(folder):
            continue
        for name in names:
            candidate = os.path.join(folder, name)
            if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
                return candidate
    raise GitError("git is not installed, or not on PATH: `kvgate diff` reads the base with it")
