"""A supervision tree whose one bad child crashes again and again, and is restarted; the others never notice.

    python examples/supervised_tree.py [--seconds 8]

It shows the tree as it lives, on a terminal, and what happens to it, line by line.
"""

from __future__ import annotations

import argparse
import asyncio
import signal

from rich.console import Console
from rich.live import Live
from rich.text import Text

from raptor import Actor, Backoff, ChildSpec, Ref, Runtime, Supervisor, SystemClock
from raptor.events import Event
from raptor.tree import tree

STORY = ("child_started", "child_ended", "gave_up")


class Steady(Actor):
    """Counts to itself, twice a second."""

    def init(self) -> None:
        self.count = 0
        self.send_after(0.5, "tick")

    def handle_info(self, message: object) -> None:
        self.count += 1
        self.send_after(0.5, "tick")

    def handle_call(self, message: object, caller: object) -> int:
        return self.count


class Shaky(Actor):
    """Lives for a second, then trips over a bug."""

    def init(self) -> None:
        self.send_after(1.0, "work")

    def handle_info(self, message: object) -> None:
        raise ConnectionError("the other side hung up")


class Work(Supervisor):
    """Restarts its children one for one, and waits a little longer before each restart."""

    def init(self) -> object:
        children = [ChildSpec(id="steady", start=Steady, name="steady"), ChildSpec(id="shaky", start=Shaky)]
        return super().init(children, intensity=20, period_s=10.0, backoff=Backoff(initial_s=0.5, max_s=2.0))


def narrate(console: Console, started_at: float, clock: SystemClock, event: Event) -> None:
    """One line for one event."""
    match event.name, event.facts.get("reason"):
        case "child_started", _:
            mark, style, what = "▶", "green", "started"
        case "child_ended", BaseException() as error:
            mark, style, what = "✗", "red", f"crashed: {type(error).__name__}: {error}"
        case "child_ended", reason:
            mark, style, what = "■", "dim", f"ended: {reason!r}"
        case _:
            mark, style, what = "✗", "red", "given up: too many restarts"
    when = f"{clock.monotonic() - started_at:6.1f} s  "
    console.print(Text.assemble(when, f"{event.facts['child']!s:<8}", (f"{mark} ", style), what), soft_wrap=True)


async def show(clock: SystemClock, seconds: float) -> None:
    console = Console()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    runtime = Runtime(clock, log=False)
    started_at = clock.monotonic()
    runtime.events.subscribe(lambda event: narrate(console, started_at, clock, event), *STORY)
    root = await runtime.start(
        Supervisor, [ChildSpec(id="work", start=Work, name="work")], strategy="rest_for_one", name="root"
    )
    assert root is not None
    steady = runtime.whereis("steady")
    await watch(console, clock, root, stopping, seconds)
    assert steady is not None
    count = await steady.call("count")
    shaky = next(branch for branch in tree(root).walk() if branch.name == "shaky")
    times = f"{shaky.restarts} time{'s' * (shaky.restarts != 1)}"
    console.print(
        f"\nshaky was restarted {times}; steady is still {steady!r} and has counted to {count}.",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )
    await root.stop()
    console.print("the tree is stopped, from the leaves to the root.", highlight=False)


async def watch(console: Console, clock: SystemClock, root: Ref, stopping: asyncio.Event, seconds: float) -> None:
    """Draw the tree until the time is over, or somebody presses Ctrl-C."""
    if not console.is_terminal:
        console.print(tree(root))
        await wait(stopping, seconds)
        console.print(tree(root))
        return
    with Live(tree(root), console=console, auto_refresh=False) as live:
        end = clock.monotonic() + seconds
        while (left := end - clock.monotonic()) > 0 and not await wait(stopping, min(left, 0.1)):
            live.update(tree(root), refresh=True)


async def wait(stopping: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await stopping.wait()
    except TimeoutError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description="A supervised tree that restarts its crashing child.")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long to watch (default 8)")
    clock = SystemClock()
    seconds = parser.parse_args().seconds
    clock.run(lambda: show(clock, seconds))


if __name__ == "__main__":
    main()
