"""The lines that `start` prints and `logs` shows: one record, one line. It keeps only what it has already said."""

from __future__ import annotations

from datetime import tzinfo

from raptor.cli.chronicle import Record
from raptor.cli.paint import Paint, no_paint
from raptor.cli.words import clock_time, plain, rough, took, until, when

NEVER_RAN = ("unknown service", "bad payload")  # reasons of the dead
SHOWN = 20  # tasks of one line
MIDDLE = 46  # where the last column begins, as far as there is room


class Narrator:
    """Tells records to people. `width` is that of the longest name."""

    def __init__(self, zone: tzinfo | None = None, paint: Paint = no_paint, names: tuple[str, ...] = ()) -> None:
        self._zone = zone
        self._paint = paint
        self._width = max((len(name) for name in names), default=0)
        self._idle: set[str] = set()  # schedulers of which it was said that nothing is due
        self._hinted = False
        self.several = False  # more than one scheduler: each line says whose it is

    def line(self, record: Record) -> str | None:
        """The line for a record; None where there is nothing new to say."""
        if record["event"] == "checked":
            return self._checked(record)
        tell = getattr(self, f"_{record['event']}", None)
        if tell is None:
            return None
        if record["event"] not in ("reloaded", "clock_stepped"):
            self._idle.discard(record.get("scheduler", ""))
        told: str | None = tell(record)
        return told

    def _stamp(self, record: Record) -> str:
        return self._paint(clock_time(record["at"], self._zone), "dim")

    def _of_service(self, record: Record, middle: str, shown: int, right: str = "") -> str:
        name = plain(record["service"]) + (f" #{record['task']}" if "task" in record else "")
        if self.several and record.get("scheduler"):
            name = f"{plain(record['scheduler'])}/{name}"
        self._width = max(self._width, len(name))
        gap = " " * max(3, MIDDLE - shown) if right else ""
        return f"{self._stamp(record)}  {name:<{self._width}}  {middle}{gap}{right}"

    def _of_scheduler(self, record: Record, text: str) -> str:
        whose = f"{plain(record['scheduler'])}: " if self.several and record.get("scheduler") else ""
        return f"{self._stamp(record)}  {whose}{text}"

    def _service_started(self, record: Record) -> str:
        middle = f"▶ started (attempt {_attempt(record, record['attempt'])})"
        return self._of_service(record, self._paint("▶ started", "cyan") + middle[9:], len(middle))

    def _service_ended(self, record: Record) -> str:
        outcome, spent = record["outcome"], took(record.get("took_s"))
        info = plain(record.get("info") or "")
        match outcome:
            case "ok":
                head, tail, colour = "✓ ok", f" in {spent}" + (f": {_short(info)}" if info else ""), "green"
            case "timed_out":
                head, tail, colour = "✗ timed out", f" after {spent}", "red"
            case "interrupted":
                head, tail, colour = "◌ interrupted", f" after {spent}: it runs again at the next start", "yellow"
            case _:
                head, tail, colour = "✗ failed", f" in {spent}: {_short(info) or 'no reason given'}", "red"
        right = self._what_next(record)
        return self._of_service(record, self._paint(head, colour) + tail, len(head + tail), right)

    def _what_next(self, record: Record) -> str:
        now, tries = record["at"], record.get("max_attempts")
        match record.get("verdict"):
            case "done":
                return self._paint(f"next: {until(record.get('next_due'), now, self._zone)}", "dim")
            case "retry" if record.get("retry_at") is not None:
                return f"→ retry {_attempt(record, record['attempt'] + 1)} in {rough(record['retry_at'] - now)}"
            case "failed":
                tried = f"gave up after {tries} attempts" if (tries or 1) > 1 else "not tried again"
                return f"→ {tried}; next: {until(record.get('next_due'), now, self._zone)}"
            case _:
                return ""

    def _service_skipped(self, record: Record) -> str:
        middle = f"○ skipped: {plain(record.get('reason'))}"
        return self._of_service(record, self._paint("○ skipped", "yellow") + middle[9:], len(middle))

    def _slot_closed(self, record: Record) -> str | None:
        if record["verdict"] in ("done", "failed"):
            return None  # the run that closed it was told
        many = f"{record['count']} slots" if record.get("count", 1) > 1 else "a slot"
        reason = f" ({plain(record['reason'])})" if record.get("reason") else ""
        middle = f"○ {record['verdict']}: {many}, planned {when(record['planned'], record['at'], self._zone)}{reason}"
        return self._of_service(record, middle, len(middle))

    def _task_started(self, record: Record) -> str:
        return self._service_started(record)

    def _task_ended(self, record: Record) -> str:
        spent = "" if record.get("took_s") is None else f" in {took(record['took_s'])}"
        info = f": {_short(plain(record['info']))}" if record.get("info") else ""
        right, now = "", record["at"]
        match record["verdict"], record["outcome"]:
            case "done", _:
                head, tail, colour = "✓ ok", spent + info, "green"
            case "again", "interrupted":
                head, tail, colour = "◌ interrupted", f"{spent}: given back", "yellow"
            case "again", _:
                head, tail, colour = "↻ comes back", f": {until(record.get('retry_at'), now, self._zone)}", "yellow"
            case "skipped", _:
                head, tail, colour = "○ cancelled", _because(record), "yellow"
            case "missed", _:
                head, tail, colour = "✗ dead", _because(record), "red"
            case "failed", "interrupted" if record.get("reason") in NEVER_RAN:
                head, tail, colour = "✗ not run", info, "red"
            case _, outcome:
                failed = {"timed_out": "✗ timed out", "interrupted": "◌ lapsed", "ok": "↻ to be tried again"}
                head, tail, colour = failed.get(outcome, "✗ failed"), spent + info, "red"
                right = self._what_next(record)
        if record["verdict"] == "failed":
            right = f"→ dead{_because(record)}; raptor task {record['task']}"
        elif record.get("next_due") is not None:
            right = self._paint(f"next: {until(record['next_due'], now, self._zone)}", "dim")
        return self._of_service(record, self._paint(head, colour) + tail, len(head + tail), right)

    def _task_cancelled(self, record: Record) -> str:
        middle = f"○ cancelled{_because(record)}"
        return self._of_service(record, self._paint("○ cancelled", "yellow") + middle[11:], len(middle))

    def _tasks_counted(self, record: Record) -> str:
        words = {"begun": "started", "ok": "ok", "to_retry": "to retry", "given_back": "given back"}
        words |= {"dead": "dead", "cancelled": "cancelled", "refused": "refused"}
        counts = [f"{record[key]:,} {word}" for key, word in words.items() if record.get(key)]
        return f"{self._stamp(record)}  tasks, not told one by one: {', '.join(counts)}"

    def _not_recorded(self, record: Record) -> str:
        """What a node that has to end cannot record counts as broken off."""
        tasks = [f"#{id}" for id in record["tasks"]]
        named = " ".join([*tasks[:SHOWN], *([f"and {len(tasks) - SHOWN} more"] if tasks[SHOWN:] else [])])
        tail = f"{named and ' ' + named}: {plain(record['error'])}"
        many = len(record["runs"]) > 1
        fate = ("they run again" if many else "it runs again") if record["again"] else "given up"
        head, right = "✗ not recorded", f"→ as after a crash: {fate}"
        return self._of_service(record, self._paint(head, "red") + tail, len(head + tail), right)

    def _result_refused(self, record: Record) -> str:
        return self._warning(record, f"the result of task {record['task']} came when its lease was another's")

    def _cycle_done(self, record: Record) -> str:
        more = [
            f"{record[key]} {word}"
            for key, word in (("retried", "retried"), ("to_retry", "to retry"), ("skipped", "skipped"))
            if record.get(key)
        ]
        counts = ", ".join([f"{record['ok']} ok", f"{record['failed']} failed", *more])
        text = f"cycle done: {counts}{self._next_check(record)}"
        if record.get("hint") and not self._hinted:
            self._hinted = True
            text += self._paint(f"     {record['hint']}", "dim")
        return self._of_scheduler(record, text)

    def _next_check(self, record: Record) -> str:
        at = record.get("next_check")
        return "" if at is None else f" · next check {until(at, record['at'], self._zone)}"

    def _checked(self, record: Record) -> str | None:
        if record.get("due"):
            return None
        if record["scheduler"] in self._idle:
            return None
        self._idle.add(record["scheduler"])
        waiting: dict[str, str] = record.get("waiting") or {}
        listed = ", ".join(f"{plain(name)} {plain(reason)}" for name, reason in list(waiting.items())[:3])
        more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
        text = f"nothing due: {listed}{more}" if listed else "nothing due"
        return self._of_scheduler(record, self._paint(text + self._next_check(record), "dim"))

    def _cycle_resumed(self, record: Record) -> str:
        left = record["left"]
        done = [name for name in record["done"] if name not in left]  # the run that was cut off is in both
        names = f" ({', '.join(map(plain, done))})" if done else ""
        whose = f" of {plain(record['scheduler'])}" if self.several else ""
        before = "the crash" if record.get("crash", True) else "the stop"
        return (
            f"{self._paint('↻ resuming', 'yellow')} the cycle{whose} of {clock_time(record['planned'], self._zone)}: "
            f"{len(done)} of {len({*done, *left})} done before {before}{names}, {len(left)} left"
        )

    def _store_failing(self, record: Record) -> str:
        return self._warning(record, f"the store cannot write, and is tried again: {record['error']}")

    def _standing_by(self, record: Record) -> str:
        return self._of_scheduler(record, f"standing by: {plain(record['owner'])} runs it")

    def _taken_over(self, record: Record) -> str:
        return self._of_scheduler(record, f"{self._paint('↻ taken over', 'yellow')} from {plain(record['owner'])}")

    def _ownership_lost(self, record: Record) -> str:
        return self._warning(record, "another node has taken it over: what ran here was broken off")

    def _write_refused(self, record: Record) -> str:
        return self._warning(record, f"the result of {record.get('service')} came too late, and was refused")

    def _node_left(self, record: Record) -> str:
        return self._warning(record, f"node {record['node']} is gone")

    def _store_lost(self, record: Record) -> str:
        return self._warning(record, f"the store does not answer, and is asked again: {record['error']}")

    def _store_back(self, record: Record) -> str:
        return self._of_scheduler(record, "the store answers again")

    def _clock_stepped(self, record: Record) -> str:
        step = record["step_s"]
        return self._warning(record, f"the clock was set {'forwards' if step > 0 else 'back'} by {rough(step)}")

    def _scheduler_stalled(self, record: Record) -> str:
        return self._warning(record, "it stood still, and is restarted")

    def _message_dropped(self, record: Record) -> str:
        return self._warning(record, f"a message about {record.get('service')} was dropped: too many in a minute")

    def _message_failed(self, record: Record) -> str:
        return self._warning(record, f"on_failure {record.get('target')}: {record.get('error')}")

    def _command_failed(self, record: Record) -> str:
        return self._warning(record, f"the command {record.get('command')} failed: {record.get('error')}")

    def _gave_up(self, record: Record) -> str:
        return self._warning(record, "a supervisor gave up: see `raptor tree`")

    def _loop_resumed(self, record: Record) -> str:
        return self._warning(record, f"something blocked the event loop for {rough(record['stalled_s'])}")

    def _log(self, record: Record) -> str:
        return self._warning(record, str(record["text"]).partition("\n")[0])

    def _printed(self, record: Record) -> str:
        return f"{self._stamp(record)}  | {plain(record['text'])}"

    def _reloaded(self, record: Record) -> str:
        return self._of_scheduler(record, f"reloaded: {record['services']} services")

    def _reload_failed(self, record: Record) -> str:
        return self._warning(record, f"not reloaded, nothing has changed: {record['error']}")

    def _started(self, record: Record) -> str:
        return plain(record["text"])

    def _stopping(self, record: Record) -> str:
        return f"{self._stamp(record)}  {plain(record['text'])}"

    def _stopped(self, record: Record) -> str:
        return f"{self._stamp(record)}  {plain(record['text'])}"

    def _warning(self, record: Record, text: str) -> str:
        return self._of_scheduler(record, f"{self._paint('! warning:', 'yellow')} {plain(text)}")


def _attempt(record: Record, number: int) -> str:
    limit = record.get("max_attempts")
    return f"{number}/{limit}" if limit else str(number)


def _because(record: Record) -> str:
    reason = plain(record.get("reason") or "")
    return f": {reason}" if reason not in ("", "cancelled", "failed") else ""


def _short(info: str) -> str:
    return info if len(info) <= 100 else info[:97] + "..."
