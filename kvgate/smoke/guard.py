"""Ends a server whose kvgate is gone.

kvgate starts this beside a server and holds its standard input. The first line names the server's pid and mark; when
the input ends without a line ``done``, kvgate was killed, and the server goes too.
"""

from __future__ import annotations

import signal
import sys

from kvgate.smoke.processes import end_all


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lines = [line.split() for line in sys.stdin]
    if lines and ["done"] not in lines:
        pid, mark = lines[0]
        end_all(int(pid), mark, lambda: ())


if __name__ == "__main__":
    main()
