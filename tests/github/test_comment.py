"""The comment against a server that speaks GitHub's API."""

from __future__ import annotations

import time

import pytest

from kvgate.github.comment import MARK, CommentError

COMMENTS = "/repos/o/r/issues/12/comments"
ONE = r"/repos/o/r/issues/comments/\d+"


def bodies(github):
    return [comment["body"] for comment in github.comments]


# -- one comment ---------------------------------------------------------------------------------------------------


def test_the_first_comment_is_written(github, write):
    github.add("somebody's words", "alice")
    assert write("the table") == "comment written"
    assert bodies(github) == ["somebody's words", f"{MARK}\nthe table"]
    assert github.tokens == {"token ghs_secret"}


def test_it_is_updated_and_stays_one(github, write):
    write("one")
    assert write("two") == "comment updated"
    assert bodies(github) == [f"{MARK}\ntwo"]


def test_nothing_is_sent_for_the_same_text(github, write):
    write("one")
    github.requests.clear()
    assert write("one") == "comment unchanged"
    assert github.writes() == []


def test_nothing_to_say_makes_no_comment(github, write):
    assert write("clean", clean=True) == "no comment: nothing to say"
    assert github.comments == []


def test_once_clean_it_is_updated(github, write):
    write("bad")
    assert write("clean", clean=True) == "comment updated"
    assert bodies(github) == [f"{MARK}\nclean"]


def test_once_clean_it_is_deleted_if_asked(github, write):
    github.add("somebody's words", "alice")
    write("bad")
    assert write("clean", clean=True, mode="delete") == "comment deleted"
    assert bodies(github) == ["somebody's words"]
    assert write("clean", clean=True, mode="delete") == "no comment: nothing to say"


def test_several_of_its_own_become_one(github, write):
    """Two runs at once can both have written one."""
    github.add(f"{MARK}\none")
    github.add(f"{MARK}\ntwo")
    assert write("three") == "comment updated"
    assert bodies(github) == [f"{MARK}\nthree"]


def test_the_mark_in_somebody_s_comment_makes_it_not_its_own(github, write):
    """A token that may write could also edit other people's comments."""
    github.add(f"{MARK}\nlooks like it", "mallory")
    github.add(f"quoted:\n{MARK}", "github-actions[bot]")
    assert write("mine") == "comment written"
    assert write("clean", clean=True, mode="delete") == "comment deleted"
    assert bodies(github) == [f"{MARK}\nlooks like it", f"quoted:\n{MARK}"]


def test_a_token_of_a_person_writes_as_that_person(github, write):
    github.login = "robot"
    github.add(f"{MARK}\nby another workflow")
    assert write("mine") == "comment written"
    assert write("again") == "comment updated"
    assert bodies(github) == [f"{MARK}\nby another workflow", f"{MARK}\nagain"]


def test_a_deleted_account_is_no_crash(github, write):
    github.add(f"{MARK}\nghost")["user"] = None
    assert write("mine") == "comment written"


@pytest.mark.parametrize("size", [1, 2, 100])
def test_every_page_is_read(github, write, size):
    github.page_size = size
    for number in range(5):
        github.add(f"comment {number}", "alice")
    github.add(f"{MARK}\nold")
    for number in range(3):
        github.add(f"later {number}", "alice")
    assert write("new") == "comment updated"
    assert bodies(github).count(f"{MARK}\nnew") == 1
    assert len(github.comments) == 9


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "message", "says"),
    [
        (403, "Resource not accessible by integration", r"pull-requests: write.*pull requests from forks never get it"),
        (404, "Not Found", r"the token may not write"),
        (401, "Bad credentials", r"does not accept the token"),
        (422, "Validation Failed", r"GitHub answers 422 \(Validation Failed\)"),
    ],
)
def test_a_refusal_is_said_once_and_not_insisted_on(github, write, status, message, says):
    github.fail("POST", COMMENTS, status, times=99, message=message)
    with pytest.raises(CommentError, match=says) as caught:
        write()
    assert github.writes() == [f"POST {COMMENTS}"]
    assert write.waited == []
    assert "ghs_secret" not in str(caught.value)


def test_a_read_only_token_of_a_fork(github, write):
    """It may read the comments, and neither write nor change one."""
    github.add(f"{MARK}\nold")
    github.fail("PATCH", ONE, 403, times=99, message="Resource not accessible by integration")
    with pytest.raises(CommentError, match="the job summary says the same"):
        write("new")
    assert bodies(github) == [f"{MARK}\nold"]


def test_a_token_without_any_right_to_read(github, write):
    github.fail("GET", COMMENTS, 403, times=99)
    with pytest.raises(CommentError, match="the token may not write"):
        write()


# -- failures that pass --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize(("method", "path"), [("GET", "/user"), ("GET", COMMENTS), ("POST", COMMENTS)])
def test_an_outage_is_tried_again(github, write, status, method, path):
    github.fail(method, path, status, times=2)
    assert write() == "comment written"
    assert len(github.comments) == 1
    assert write.waited == [1, 2]


def test_a_comment_that_was_written_in_spite_of_an_error_is_not_written_twice(github, write):
    github.fail("POST", COMMENTS, 502, after_doing_it=True)
    assert write("once") == "comment unchanged"
    assert bodies(github) == [f"{MARK}\nonce"]


def test_an_outage_that_stays_is_given_up(github, write):
    github.fail("POST", COMMENTS, 503, times=99)
    with pytest.raises(CommentError, match="GitHub answers 503"):
        write()
    assert write.waited == [1, 2, 4]


def test_a_rate_limit_is_waited_for(github, write):
    github.fail("POST", COMMENTS, 403, headers={"Retry-After": "7"}, message="You have exceeded a secondary rate limit")
    assert write() == "comment written"
    assert write.waited == [7]
    github.fail("PATCH", ONE, 429, headers={"Retry-After": "3"})
    assert write("again") == "comment updated"
    assert write.waited == [7, 3]


def test_a_rate_limit_that_ends_soon_is_waited_for(github, write):
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 20)}
    github.fail("GET", COMMENTS, 403, headers=headers, message="API rate limit exceeded")
    assert write() == "comment written"
    (waited,) = write.waited
    assert 15 < waited <= 21


def test_a_rate_limit_that_ends_late_is_not(github, write):
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 3000)}
    github.fail("GET", COMMENTS, 403, times=99, headers=headers, message="API rate limit exceeded")
    with pytest.raises(CommentError, match="rate limit is used up"):
        write()
    assert write.waited == []


def test_nobody_answers(write):
    with pytest.raises(CommentError, match="GitHub cannot be reached"):
        write(api="http://127.0.0.1:9")
    assert write.waited == [1, 2, 4]


@pytest.mark.parametrize("api", ["http://github.example.com", "ftp://x", "file:///etc/passwd", "", "api.github.com"])
def test_a_token_goes_to_https_only(write, api):
    from kvgate.github.comment import PullRequest, write_comment

    with pytest.raises(CommentError, match="an https address expected"):
        write_comment(PullRequest("o/r", 12, "ghs_secret", api), "x", clean=False)


def test_a_body_beyond_the_limit_is_github_s_to_refuse(github, write):
    with pytest.raises(CommentError, match="422"):
        write("x" * 65_537)
