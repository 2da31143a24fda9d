"""A scheduler under a supervisor of your own, beside your own actors: if one of them crashes, both start anew.

    python examples/custom_tree.py

The node's tree is not there: the program brings the store, the services and the strategy. Here the scheduler shares
the fate of a connection that it depends on (one_for_all).
"""

import asyncio
import tempfile

from raptor import Actor, ChildSpec, Runtime, Supervisor, SystemClock
from raptor.catalogue import Catalogue
from raptor.rows import Definition, Scheduled
from raptor.runners import RUNNERS
from raptor.schedulers import spec_of
from raptor.state.files import FileStore
from raptor.state.home import Home
from raptor.timetable import Timetable
from raptor.tree import tree
from raptor.turn import Logs
from raptor.workshop import Workshop

clock = SystemClock()
ran = asyncio.Semaphore(0)


async def poll():
    """The one service of this program."""
    print("poll", flush=True)
    ran.release()


class Connection(Actor):
    """Something that the services need. It breaks when it is told to."""

    def init(self) -> None:
        print("connected", flush=True)

    def handle_cast(self, message: object) -> None:
        raise ConnectionError("the line is down")


async def main(folder: str) -> None:
    runtime = Runtime(clock, log=False)
    home = Home.open(f"{folder}/state", clock)
    timetable = Timetable(FileStore(home), clock, runtime.events)
    await timetable.load()
    workshop = Workshop(
        timetable=timetable,
        runners={kind: make(clock) for kind, make in RUNNERS.items()},
        logs=Logs(home.path / "logs"),
        catalogue=Catalogue.of([poll]),
        definitions={"main": Definition(name="main", services=(Scheduled(name="poll", every_s=0.2),))},
    )
    children = [ChildSpec(id="connection", start=Connection, name="connection"), spec_of("main", workshop)]
    root = await runtime.start(Supervisor, children, strategy="one_for_all", intensity=3, name="program")
    assert root is not None
    await ran.acquire()
    connection = runtime.whereis("connection")
    assert connection is not None
    connection.cast("break")
    await connection.wait()
    await ran.acquire()  # the scheduler came back with it
    restarts = {branch.name: branch.restarts for branch in tree(root).walk()}
    print(f"restarts of the connection: {restarts['connection']}, of the scheduler: {restarts['scheduler:main']}")
    await root.stop()
    await timetable.store.close()
    home.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        clock.run(lambda: main(name))
