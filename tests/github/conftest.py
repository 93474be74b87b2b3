"""A server on this machine that speaks as much of GitHub's API as a comment needs."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

BOT = "github-actions[bot]"


@dataclass
class Failure:
    """An answer instead of the real one, to requests that match."""

    method: str
    path: str
    status: int
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "failed"
    after_doing_it: bool = False


@dataclass
class FakeGitHub:
    """The comments of one pull request, who asks, and what goes wrong."""

    address: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    login: str | None = None  # of /user; None as for a workflow's token
    page_size: int | None = None
    count: int = 0

    def add(self, body: str, login: str = BOT) -> dict[str, Any]:
        self.count += 1
        comment = {
            "id": self.count, "url": f"{self.address}/repos/o/r/issues/comments/{self.count}", "body": body,
            "user": {"login": login, "id": 1, "type": "User", "url": f"{self.address}/users/x"},
        }  # fmt: skip
        self.comments.append(comment)
        return comment

    def writes(self) -> list[str]:
        return [f"{method} {path}" for method, path in self.requests if method != "GET"]

    def fail(self, method: str, path: str, status: int, **options: Any) -> Failure:
        failure = Failure(method, path, status, **options)
        self.failures.append(failure)
        return failure


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        self._do("GET")

    def do_POST(self) -> None:
        self._do("POST")

    def do_PATCH(self) -> None:
        self._do("PATCH")

    def do_DELETE(self) -> None:
        self._do("DELETE")

    def _do(self, method: str) -> None:
        github: FakeGitHub = self.server.github
        size = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        path = urlsplit(self.path).path
        github.requests.append((method, path))
        github.tokens.add(self.headers.get("authorization", ""))
        left = [one for one in github.failures if one.times > 0 and one.method == method]
        failure = next((one for one in left if re.fullmatch(one.path, path)), None)
        if failure is not None:
            failure.times -= 1
            if failure.after_doing_it:
                self._answer(github, method, path, body)
            return self._send(failure.status, {"message": failure.message}, failure.headers)
        status, answer, headers = self._answer(github, method, path, body)
        return self._send(status, answer, headers)

    def _answer(self, github: FakeGitHub, method: str, path: str, body: Any) -> tuple[int, Any, dict[str, str]]:
        if path == "/user":
            if github.login is None:
                return 403, {"message": "Resource not accessible by integration"}, {}
            return 200, {"login": github.login, "id": 2, "url": f"{github.address}/user"}, {}
        if path == "/repos/o/r/issues/12":
            return 200, {"number": 12, "url": f"{github.address}{path}", "comments": len(github.comments)}, {}
        if path == "/repos/o/r/issues/12/comments" and method == "GET":
            return self._page(github)
        if path == "/repos/o/r/issues/12/comments":
            if len(body["body"]) > 65_536:
                return 422, {"message": "Validation Failed"}, {}
            return 201, github.add(body["body"], github.login or BOT), {}
        match = re.fullmatch(r"/repos/o/r/issues/comments/(\d+)", path)
        comment = next((one for one in github.comments if match and one["id"] == int(match[1])), None)
        if comment is None:
            return 404, {"message": "Not Found"}, {}
        if method == "DELETE":
            github.comments.remove(comment)
            return 204, None, {}
        if method == "PATCH":
            comment["body"] = body["body"]
        return 200, comment, {}

    def _page(self, github: FakeGitHub) -> tuple[int, Any, dict[str, str]]:
        query = parse_qs(urlsplit(self.path).query)
        size = github.page_size or int(query.get("per_page", ["30"])[0])
        page = int(query.get("page", ["1"])[0])
        found = github.comments[(page - 1) * size : page * size]
        headers = {}
        if page * size < len(github.comments):
            headers["Link"] = f'<{github.address}{urlsplit(self.path).path}?page={page + 1}>; rel="next"'
        return 200, found, headers

    def _send(self, status: int, answer: Any, headers: dict[str, str]) -> None:
        data = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    """GitHub, on a port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    made = FakeGitHub(f"http://127.0.0.1:{server.server_address[1]}")
    server.github = made  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def write(github: FakeGitHub) -> Callable[..., str]:
    """Writes the comment; the seconds that were waited are in ``write.waited``."""
    from kvgate.github.comment import PullRequest, write_comment

    waited: list[float] = []

    def run(body: str = "words", *, clean: bool = False, mode: str = "update", api: str | None = None) -> str:
        pull_request = PullRequest("o/r", 12, "ghs_secret", api or github.address)
        return write_comment(pull_request, body, clean=clean, mode=mode, sleep=waited.append)  # type: ignore[arg-type]

    run.waited = waited  # type: ignore[attr-defined]
    return run
