"""Ends a server whose kvgate is gone.

kvgate starts this beside a server and holds its standard input. The first line is a JSON object with the server's pid,
its mark and its folder; when the input ends without a line ``done``, kvgate was killed, and the server goes too.
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
        server = json.loads(lines[0])
        end_all(server["pid"], server["mark"], lambda: ())
        shutil.rmtree(server["folder"], ignore_errors=True)


if __name__ == "__main__":
    main()
