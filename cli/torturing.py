"""`raptor torture`: kill nodes on this machine again and again, and say whether Raptor kept what it promises."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from raptor.cli.session import Session, command, pass_session, talk
from raptor.cli.words import plain, rough

if TYPE_CHECKING:
    from raptor.testing.torture.campaign import Campaign

QUIET_S = 15.0  # between two lines, where nobody looks at a terminal
SHOWN = 20  # violations that are printed
WORDS = {
    "kills": "kill -9 of a node",
    "children": "kill -9 of a service's process",
    "stops": "SIGSTOP",
    "terms": "SIGTERM",
    "server_kills": "kill -9 of the server",
    "unrecorded": "stops that could not record all that had ended, and said so",
    "runs": "runs",
    "acks": "acknowledged commands",
    "repeats": "runs repeated after a kill",
    "rounds": "rounds",
    "standstills": "standstills of the machine",
}
MEANS = {
    "missed": "a slot came that should have had a run, and had none",
    "early": "a run began before its time",
    "late": "a run began long after its time",
    "extra": "more runs than slots, failures, kills and commands explain",
    "repeated": "work ran again whose end was on disk",
    "overlap": "two runs at a time of what runs once at a time",
    "stale": "the result counts of a run that was not entitled to it any more",
    "order": "services of a cycle ran out of order, or lines of the ledger contradict each other",
    "lost": "what was acknowledged is not there",
    "unaccounted": "slots of which the history says nothing, or something that cannot be",
    "stuck": "something is pending that should long have ended",
    "duplicate": "two runs have the same id",
    "fence": "the count of takes is not what it must be",
    "attempts": "the count of attempts is not what it must be",
    "series": "a task that repeats has no successor, several, or one out of time",
    "unfounded": "the store says what no run did",
    "node": "a node ended by itself, or not in order",
}


@command("torture", reading=True)
@click.option("--for", "length", default="1m", show_default=True, metavar="5m", help="How long.")
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Chance, to be repeated; else a new one.")
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="Your own services: they really run.")
@pass_session
def torture(session: Session, length: str, seed: int | None, modules: tuple[str, ...]) -> int:
    """Kill nodes of Raptor on this machine again and again, and judge whether anything was lost or doubled.

    Nodes are started in a scratch directory, with services and tasks of their own, on files or, with --store, in a new
    schema of that PostgreSQL, which is dropped in the end. Your state is not touched. kill -9, SIGSTOP and SIGTERM come
    at random moments. With -m your own services run instead, by your own raptor.toml on scratch state: what they do is
    real. Ctrl-C ends it early, with a verdict on what was done. Exit 1 if a promise was broken.
    """
    from raptor.duration import seconds

    length_s = seconds(length)
    session.flags |= {"module": list(modules)} if modules else {}
    campaign = _campaign(session, length_s, _new_seed() if seed is None else seed, own=bool(modules))
    talk(f"torture for {rough(length_s)}, seed {campaign.seed}, in {campaign.folder}")
    try:
        return _run(session, campaign)
    finally:
        if not campaign.found:
            shutil.rmtree(campaign.folder, ignore_errors=True)


def _new_seed() -> int:
    import secrets

    return secrets.randbelow(2**32)


def _campaign(session: Session, length_s: float, seed: int, *, own: bool) -> Campaign:
    from raptor.clock import SystemClock
    from raptor.errors import BadInput
    from raptor.masked import masked
    from raptor.testing.torture.campaign import Campaign
    from raptor.testing.torture.own import Own

    store = session.flags.get("store")
    if store is not None and not str(store).startswith(("postgresql:", "postgres:")):
        raise BadInput(f"--store {masked(str(store))}: files, which need no address, or a postgresql:// are tortured")
    services = None
    if own:
        config = session.config
        config.catalogue()  # what is wrong with it is said before anything starts
        services = Own(modules=config.modules, file=None if config.file is None else str(config.file))
    folder = Path(tempfile.mkdtemp(prefix="raptor-torture-"))
    return Campaign(seed, length_s, folder, SystemClock(), store=None if store is None else str(store), own=services)


def _run(session: Session, campaign: Campaign) -> int:
    progress = _Progress(campaign)

    async def main() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _stop, stop, asyncio.current_task())
        await campaign.run(progress.show, stop)

    try:
        campaign.clock.run(main)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        progress.close()
    _verdict(session, campaign)
    return 1 if campaign.found else 0


def _stop(stop: asyncio.Event, main: asyncio.Task[None] | None) -> None:
    """The first time in order: what was done is judged. The second time at once."""
    if stop.is_set() and main is not None:
        main.cancel()
    if not stop.is_set():
        talk("\nstopping: what was done is judged; Ctrl-C again stops at once")
    stop.set()


class _Progress:
    """One line that changes on a terminal; elsewhere a line now and then."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._began = campaign.clock.monotonic()
        self._said = self._began
        self._live = sys.stderr.isatty()

    def show(self) -> None:
        now, counts = self._campaign.clock.monotonic(), self._campaign.counts
        parts = [f"{counts[name]:,} {name}" for name in ("kills", "runs", "acks", "repeats")]
        line = f"{rough(now - self._began):>7}  {' · '.join(parts)} · {len(self._campaign.found)} violations"
        if self._live:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        elif now - self._said >= QUIET_S:
            self._said = now
            talk(line)

    def close(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _verdict(session: Session, campaign: Campaign) -> None:
    from raptor.testing.torture.campaign import COUNTED

    counts = {name: campaign.counts[name] for name in COUNTED}
    if session.json:
        found = [{"kind": one.kind, "text": one.text, "seed": one.seed, "folder": one.folder} for one in campaign.found]
        session.print_json({"ok": not found, "seed": campaign.seed, "counts": counts, "violations": found})
        return
    for name, count in counts.items():
        if count:
            click.echo(f"{count:>9,}  {WORDS[name]}")
    colour = session.colour
    if not campaign.found:
        click.echo(click.style("✓ sound", fg="green") + ": nothing lost, nothing doubled, nothing early", color=colour)
    for one in campaign.found[:SHOWN]:
        click.echo(f"{click.style(f'✗ {one.kind}', fg='red')}  {plain(one.text)}", color=colour)
    if campaign.found:
        if len(campaign.found) > SHOWN:
            click.echo(f"  and {len(campaign.found) - SHOWN} more")
        for kind in dict.fromkeys(one.kind for one in campaign.found):
            click.echo(f"  {kind}: {MEANS.get(kind, kind)}")
        click.echo(f"the histories, stores and logs are kept in {campaign.folder}")
    click.echo(f"again, as far as time repeats: raptor torture --seed {campaign.seed}")
