"""How proxies spread requests, read from their own configurations."""

from __future__ import annotations

import time

import pytest

from kvgate.ruleset.checks.routing import _balancers
from kvgate.source.text import SourceFile

SERVERS = "    server vllm-{number} 10.0.0.{number}:8000 check\n"


@pytest.mark.parametrize(
    ("balance", "expected"),
    [("", 1), ("    balance roundrobin\n", 1), ("    balance hdr(x-session)\n", 0), ("\tbalance source\n", 0)],
)
@pytest.mark.parametrize("servers", [2, 40, 2_000])
def test_a_backend_of_haproxy(balance: str, expected: int, servers: int) -> None:
    listed = "".join(SERVERS.format(number=number) for number in range(servers))
    text = f"backend llm\n{listed}{balance}\nfrontend all\n    default_backend llm\n"
    begin = time.process_time()
    assert len(list(_balancers(SourceFile("haproxy.cfg", text)))) == expected
    assert time.process_time() - begin < 2
