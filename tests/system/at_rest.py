"""How many statements nodes at rest cost their server in a minute, by the server's own log.

`python -m tests.system.at_rest`: an owner of a scheduler, one who stands by, a worker. It takes about four minutes.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.servers import running
from tests.system.places import Places

ASLEEP_S = 140.0  # longer than a node is in doubt after its start, and than a queue is polled
MINUTE_S = 60.0
MOST = 12
LINE = re.compile(r"^@(\S*) .*LOG:  (?:statement|execute [^:]*): (.*)", re.MULTILINE)


def main() -> int:
    counts: Counter[str] = Counter()
    with (
        running("log_statement=all", "log_line_prefix=@%r ") as server,
        tempfile.TemporaryDirectory() as folder,
        Places(Path(folder), server.url) as places,
    ):
        owner, standby, worker = (places.place(name) for name in ("owner", "standby", "worker"))
        owner.ok("schedule", "main", "one")
        owner.start("main", "--interval", "1d").wait_for("one")
        standby.start("main").wait_for("standing by")
        worker.work()
        time.sleep(ASLEEP_S)
        log = server.folder / "log"
        before = len(log.read_text())
        time.sleep(MINUTE_S)
        for client, statement in LINE.findall(log.read_text()[before:]):
            counts[client] += 1
            if not statement.startswith("WITH mine"):
                print(f"{client}: {statement[:150]}")
    print(f"statements in {MINUTE_S:g} s, by connection: {dict(counts)}")
    return int(len(counts) != 3 or max(counts.values()) > MOST)


if __name__ == "__main__":
    sys.exit(main())
