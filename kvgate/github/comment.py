"""One comment on a pull request, found again by a mark in it: written, updated, deleted.

Only comments of the token's own account are touched: anybody can write the mark into a comment of theirs. A token
that may not write is no failure, since pull requests from forks get none that may; the job summary says the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from kvgate.errors import KvgateError
from kvgate.records import record

if TYPE_CHECKING:
    from github import Github
    from github.Issue import Issue
    from github.IssueComment import IssueComment

MARK: Final = "<!-- kvgate:diff -->"
API: Final = "https://api.github.com"
ACTIONS: Final = "github-actions[bot]"
MAX_COMMENTS: Final = 5_000
TIMEOUT_SECONDS: Final = 20
TRIES: Final = 4
#: A rate limit that ends later than this is not waited for.
LONGEST_WAIT_SECONDS: Final = 60

Mode = Literal["update", "delete"]


class CommentError(KvgateError):
    """The comment could not be written; the message says why and what to do."""


@record
class PullRequest:
    """Where the comment goes.

    Attributes:
        repository: ``owner/name``.
        api: base address of GitHub's API, ``https`` (or this machine).
    """

    repository: str
    number: int
    token: str
    api: str = API


def write_comment(
    pull_request: PullRequest,
    body: str,
    *,
    clean: bool,
    mode: Mode = "update",
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Write the comment, and say what was done.

    Args:
        body: Markdown within GitHub's limit.
        clean: there is nothing to say: no comment is made for it.
        mode: what becomes of an earlier comment once the change is clean.

    Raises:
        CommentError: GitHub refused, or could not be reached.
    """
    if find_spec("github") is None:
        raise CommentError("no comment: PyGithub is missing, install kvgate[github]")
    _checked(pull_request.api)
    text = f"{MARK}\n{body}"

    def once() -> str:
        with _client(pull_request) as github:
            issue = github.get_repo(pull_request.repository).get_issue(pull_request.number)
            return _settle(issue, _own(issue, _account(github)), text, clean, mode)

    return _insisting(once, sleep)


def _settle(issue: Issue, own: list[IssueComment], text: str, clean: bool, mode: Mode) -> str:
    """Make it one comment with this text, or none."""
    if clean and (mode == "delete" or not own):
        for comment in own:
            comment.delete()
        return "comment deleted" if own else "no comment: nothing to say"
    for comment in own[1:]:
        comment.delete()
    if not own:
        issue.create_comment(text)
        return "comment written"
    if own[0].body == text:
        return "comment unchanged"
    own[0].edit(text)
    return "comment updated"


def _own(issue: Issue, account: str) -> list[IssueComment]:
    found = []
    for number, comment in enumerate(issue.get_comments()):
        if number >= MAX_COMMENTS:
            break
        if comment.user is not None and comment.user.login == account and (comment.body or "").startswith(MARK):
            found.append(comment)
    return found


def _account(github: Github) -> str:
    """The account that the token writes as; the token of a workflow may not ask, and is GitHub Actions' own."""
    from github import GithubException

    try:
        return github.get_user().login
    except GithubException as error:
        if error.status in (401, 403, 404) and not _limit(error):
            return ACTIONS
        raise


def _client(pull_request: PullRequest) -> Github:
    from github import Auth, Github

    return Github(
        auth=Auth.Token(pull_request.token),
        base_url=pull_request.api.rstrip("/"),
        timeout=TIMEOUT_SECONDS,
        per_page=100,
        lazy=True,  # the comments are asked for, the repository and the pull request need not be
        retry=None,  # waits for a rate limit as long as it takes; see _insisting
        seconds_between_requests=0,
        seconds_between_writes=0,
        user_agent="kvgate",
    )


def _checked(api: str) -> None:
    parts = urlsplit(api)
    here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme != "https" and not (parts.scheme == "http" and here):
        raise CommentError(f"GITHUB_API_URL: an https address expected, got {api!r}: a token goes nowhere else")


def _insisting(once: Callable[[], str], sleep: Callable[[float], None]) -> str:
    """Try again where the failure passes by itself. Everything is looked up anew, so that nothing is written twice."""
    from github import GithubException
    from requests import RequestException

    for attempt in range(1, TRIES + 1):
        try:
            return once()
        except GithubException as error:
            wait = _wait(error, attempt)
            if wait is None or attempt == TRIES:
                raise CommentError(_reason(error)) from None
        except RequestException as error:
            wait = float(2 ** (attempt - 1))
            if attempt == TRIES:
                raise CommentError(f"no comment: GitHub cannot be reached ({type(error).__name__})") from None
        sleep(wait)
    raise AssertionError("unreachable")


def _wait(error: Any, attempt: int) -> float | None:
    """Seconds until it is worth trying again; None where it is not."""
    if error.status >= 500:
        return float(2 ** (attempt - 1))
    if not _limit(error):
        return None
    headers = error.headers or {}
    after, reset = headers.get("retry-after", ""), headers.get("x-ratelimit-reset", "")
    if after.isdecimal():
        wait = float(after)
    elif headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
        wait = float(reset) - time.time() + 1
    else:
        wait = float(2**attempt)
    return max(wait, 1.0) if wait <= LONGEST_WAIT_SECONDS else None


def _limit(error: Any) -> bool:
    """Whether a refusal is a rate limit."""
    headers = error.headers or {}
    if error.status == 429:
        return True
    return error.status == 403 and (
        "retry-after" in headers
        or headers.get("x-ratelimit-remaining") == "0"
        or "rate limit" in str(error.data).lower()
    )


def _reason(error: Any) -> str:
    if _limit(error):
        return "no comment: GitHub's rate limit is used up"
    if error.status in (403, 404):
        return (
            "no comment: the token may not write to this pull request. It needs `pull-requests: write`; pull requests "
            "from forks never get it, and the job summary says the same"
        )
    if error.status == 401:
        return "no comment: GitHub does not accept the token"
    said = error.data.get("message") if isinstance(error.data, dict) else None
    return f"no comment: GitHub answers {error.status}" + (f" ({said})" if isinstance(said, str) else "")
