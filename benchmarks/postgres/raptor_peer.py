"""A node of Raptor in a process of its own, as `raptor work` would start it: its queue is held, filled and let go."""

import sys

from benchmarks.peers import serve
from benchmarks.queues import CHUNK
from benchmarks.services import PAYLOAD, services, swallow
from raptor.embedded import running


def main(url: str) -> None:
    with running(services=services(["swallow"], swallow, every_s=None), store=url, listen=False) as node:

        def pause(yes: int) -> None:
            node.call("queue", name="default", paused=bool(yes))

        def fill(count: int) -> None:
            for start in range(0, count, CHUNK):
                node.put_many("swallow", [PAYLOAD] * min(CHUNK, count - start))

        serve({"pause": pause, "fill": fill})


if __name__ == "__main__":
    main(*sys.argv[1:])
