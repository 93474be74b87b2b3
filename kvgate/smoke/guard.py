"""Ends a server whose kvgate is gone.

kvgate starts this before a server and holds its standard input. The first line is a JSON object with the server's mark
and folder, the second one with its pid; when the input ends without a line ``done``, kvgate was killed or interrupted
before it had the server in hand, and the server goes too.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys

from kvgate.smoke.processes import end_all


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lines = [line.strip() for line in sys.stdin]
    if lines and "done" not in lines:
        told = {name: value for line in lines for name, value in json.loads(line).items()}
        end_all(told.get("pid"), told["mark"], lambda: ())
        shutil.rmtree(told["folder"], ignore_errors=True)


if __name__ == "__main__":
    main()
