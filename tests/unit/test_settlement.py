"""What a result means for a task: the verdict, the row after it, and the next repetition."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptor.duration import LONGEST_S
from raptor.service import Service
from raptor.settlement import (
    CANCELLED,
    LAPSED,
    LIVES,
    REPEATED,
    Repeat,
    as_after_a_crash,
    is_late,
    judge_task,
    lapsed,
    move,
    once_repeated,
    plan_of,
)
from raptor.task import (
    MOVES,
    Again,
    Dead,
    Done,
    Missed,
    Outcome,
    Result,
    Retry,
    Skipped,
    State,
    Task,
    Try,
    Verdict,
)

NOW = 1000.0
SERVICE = Service(name="work")
OK = Result(outcome=Outcome.OK, value=7)
FAILED = Result(outcome=Outcome.FAILED, info="no", error="no, really")
DIED = Result(outcome=Outcome.FAILED, info="killed", died=True)


def task(**fields: Any) -> Task:
    all_fields: dict[str, Any] = {"id": 5, "service": "work", "due": 900.0, "fence": 2, "started": 990.0}
    all_fields |= {"state": State.TAKEN} | fields
    return Task(**all_fields)


def judge(result: Result, service: Service = SERVICE, **fields: Any) -> Verdict:
    return judge_task(task(**fields), service, result, NOW, random.Random(1))


def asks(decision: Any) -> Result:
    return Result(outcome=Outcome.OK, decision=decision)


@pytest.mark.spec("000-37")
def test_success_is_done() -> None:
    assert judge(OK) == Done()


@pytest.mark.spec("000-38", "000-39", "001-34", "001-36")
@pytest.mark.parametrize("attempts", range(3))
def test_a_failure_is_tried_again_until_the_last_run(attempts: int) -> None:
    verdict = judge(FAILED, attempts=attempts)
    if attempts == 2:
        assert verdict == Dead("failed")
    else:
        assert isinstance(verdict, Retry)
        assert 0.9 * 2**attempts <= verdict.at - NOW <= 2**attempts


def test_a_timeout_is_a_failure() -> None:
    assert isinstance(judge(Result(outcome=Outcome.TIMED_OUT)), Retry)


@given(st.integers(0, 10_000))
def test_without_a_limit_there_is_always_another_try_within_the_hour(attempts: int) -> None:
    verdict = judge(FAILED, attempts=attempts, max_attempts=None)
    assert isinstance(verdict, Retry)
    assert NOW < verdict.at <= NOW + 3600


def test_the_third_death_in_a_row_is_poison_even_where_tries_are_left() -> None:
    assert isinstance(judge(DIED, deaths=1, max_attempts=100), Retry)
    assert judge(DIED, deaths=2, max_attempts=100) == Dead("poison")
    assert isinstance(judge(DIED, deaths=50, max_attempts=None), Retry)


def test_what_the_function_asked_for_comes_first() -> None:
    assert judge(asks(Retry(1500.0))) == Retry(1500.0)
    assert judge(asks(Retry(5.0))) == Retry(NOW)
    assert judge(asks(Retry(1500.0)), attempts=2) == Dead("failed")
    assert judge(asks(Again(1500.0)), attempts=2) == Again(1500.0)
    assert judge(asks(Again(5.0))) == Again(NOW)
    assert judge(asks(Dead("enough"))) == Dead("enough")
    assert judge(asks(Skipped("not needed"))) == Skipped("not needed")
    assert judge(asks(Done())) == Done()


@pytest.mark.parametrize("at", [float("nan"), float("inf"), "soon", None, 1e300], ids=str)
def test_a_time_that_is_none_is_a_failure(at: Any) -> None:
    assert isinstance(judge(asks(Retry(at))), Retry)
    assert judge(asks(Again(at)), attempts=2) == Dead("failed")


def test_a_reason_is_text_that_every_store_takes() -> None:
    assert judge(asks(Dead(None))) == Dead("None")  # type: ignore[arg-type]
    assert judge(asks(Dead(""))) == Dead("no reason given")
    assert judge(asks(Dead("\ud800\0"))) == Dead("\\ud800\\0")


@pytest.mark.spec("003-11", "003-17", "R0-06")
def test_a_lapse_comes_back_at_once_unless_it_was_the_last_try() -> None:
    assert lapsed(task(), NOW) == Retry(NOW)
    assert lapsed(task(attempts=2), NOW) == Dead("lapsed")
    assert lapsed(task(attempts=99, max_attempts=None), NOW) == Retry(NOW)


def test_what_was_broken_off_without_a_word_runs_again_unless_it_must_not_or_is_unwanted() -> None:
    once = Service(name="work", on_crash="skip")
    assert as_after_a_crash(task(), SERVICE, NOW) == as_after_a_crash(task(), None, NOW) == Retry(NOW)
    assert as_after_a_crash(task(attempts=2), SERVICE, NOW) == Dead("lapsed")
    assert as_after_a_crash(task(attempts=2), once, NOW) == Skipped("interrupted")
    assert as_after_a_crash(task(unwanted=True), SERVICE, NOW) == Skipped(CANCELLED)
    assert as_after_a_crash(task(unwanted=True), once, NOW) == Skipped(CANCELLED)


def test_late_is_after_the_deadline_not_at_it() -> None:
    assert is_late(task(active_s=None), 1e9) is None
    assert is_late(task(active_s=100.0), 1000.0) is None
    assert is_late(task(active_s=100.0), 1000.001) == Missed("expired")


VERDICTS: list[Verdict] = [Done(), Retry(2000.0), Again(2000.0), Dead("x"), Skipped("x"), Missed("x")]


@pytest.mark.parametrize("verdict", VERDICTS, ids=lambda verdict: type(verdict).__name__)
def test_each_verdict_leads_to_the_state_of_the_table(verdict: Verdict) -> None:
    made = move(task(), verdict, FAILED, NOW)
    assert made.state is MOVES[State.TAKEN][str(verdict.__struct_config__.tag)]
    assert (made.id, made.fence, made.queue) == (5, 2, "default")
    assert (made.ended is None) == (made.state is State.READY)


@pytest.mark.spec("003-14", "003-15", "003-16", "000-20", "R0-05")
def test_a_retry_counts_and_remembers_when_it_was_due_before() -> None:
    made = move(task(attempts=1), Retry(2000.0), FAILED, NOW)
    assert (made.due, made.previous, made.attempts, made.started) == (2000.0, 900.0, 2, 990.0)
    assert (made.error, made.reason, made.output) == ("no, really", "", None)
    assert made.history == (Try(start=990.0, end=NOW, verdict="retry", info="no"),)


def test_again_counts_nothing_and_is_remembered() -> None:
    made = move(task(attempts=1), Again(2000.0), OK, NOW)
    assert (made.due, made.previous, made.attempts, made.started, made.error) == (2000.0, 900.0, 1, None, None)
    assert [one.verdict for one in made.history] == ["again"]


def test_what_never_ran_counts_nothing() -> None:
    parked = move(task(attempts=1, previous=800.0), Dead("unknown service"), FAILED, NOW, ran=False)
    assert (parked.attempts, parked.started, parked.reason) == (1, None, "unknown service")
    back = move(task(previous=None), Again(900.0), OK, NOW, ran=False)
    assert (back.due, back.previous, back.attempts, back.history) == (900.0, None, 0, ())


def test_only_the_last_runs_are_remembered() -> None:
    history = tuple(Try(start=None, end=float(n), verdict="retry") for n in range(20))
    made = move(task(history=history), Retry(2000.0), FAILED, NOW)
    assert len(made.history) == 20
    assert made.history[-1].end == NOW


def test_deaths_are_counted_in_a_row() -> None:
    assert move(task(deaths=1), Retry(2000.0), DIED, NOW).deaths == 2
    assert move(task(deaths=1), Retry(2000.0), FAILED, NOW).deaths == 0
    assert move(task(deaths=1), Retry(NOW), LAPSED, NOW).deaths == 1
    assert move(task(deaths=1), Again(NOW), OK, NOW).deaths == 1


def test_who_is_a_suspect() -> None:
    assert move(task(), Retry(NOW), LAPSED, NOW).suspect
    assert move(task(), Retry(NOW), DIED, NOW).suspect
    assert move(task(suspect=True), Again(NOW), OK, NOW).suspect
    assert not move(task(suspect=True), Retry(NOW), FAILED, NOW).suspect
    assert not move(task(suspect=True), Done(), OK, NOW).suspect


def test_done_rows_may_go_at_once_and_others_stay() -> None:
    assert not move(task(), Done(), OK, NOW, keep_done=False).keep
    assert move(task(), Done(), OK, NOW).keep
    assert move(task(), Dead("x"), FAILED, NOW, keep_done=False).keep


@pytest.mark.parametrize(
    ("value", "output"),
    [(None, None), ({"a": [1]}, '{"a":[1]}'), (object, "\"<class 'object'>\""), ("\ud800", "\"'\\\\ud800'\"")],
)
def test_what_was_returned_is_kept_as_json(value: Any, output: str | None) -> None:
    made = move(task(), Done(), Result(outcome=Outcome.OK, value=value), NOW).output
    assert made == output


def test_a_large_output_is_cut_and_still_json() -> None:
    made = move(task(), Done(), Result(outcome=Outcome.OK, value="x" * 1_000_000), NOW).output
    assert made is not None
    assert len(made) < 70_000
    assert msgspec.json.decode(made).endswith("...")


# Repetitions


def repeating(every_s: float = 60.0, origin: float = 900.0, **plan: Any) -> str:
    return msgspec.json.encode(Repeat(every_s=every_s, origin=origin, **plan)).decode()


@pytest.mark.parametrize("verdict", [Done(), Dead("failed"), Missed("expired"), Skipped("interrupted")], ids=str)
def test_each_end_but_a_cancellation_has_its_next(verdict: Verdict) -> None:
    following = move(task(timing=repeating()), verdict, OK, NOW).successor
    assert following is not None
    assert (following.due, following.parent, following.timing, following.state) == (
        1020.0, 5, repeating(), State.READY
    )  # fmt: skip


@pytest.mark.parametrize("verdict", [Retry(2000.0), Again(2000.0), Skipped("cancelled")], ids=str)
def test_what_comes_back_and_what_is_cancelled_has_none(verdict: Verdict) -> None:
    assert move(task(timing=repeating()), verdict, OK, NOW).successor is None


@given(st.floats(0.001, 10_000), st.floats(0, 100_000), st.floats(0, 100_000))
def test_the_next_of_a_grid_is_the_first_after_now(every_s: float, since: float, late: float) -> None:
    now = 900.0 + since + late
    made = move(task(due=900.0 + since, timing=repeating(every_s)), Done(), OK, now).successor
    assert made is not None
    assert now < made.due <= now + every_s + 1e-3


def test_the_next_from_the_end_is_an_interval_after_it() -> None:
    made = move(task(timing=repeating(anchor="end")), Done(), OK, NOW).successor
    assert made is not None
    assert made.due == NOW + 60


def test_a_successor_has_what_was_asked_and_none_of_what_happened() -> None:
    old = task(
        timing=repeating(), data='{"a":1}', priority=1, max_attempts=9, key="k", key_until=5000.0, active_s=5.0,
        timeout_s=6.0, attempts=2, deaths=1, suspect=True, error="x",
        history=(Try(start=1.0, end=2.0, verdict="retry"),),
    )  # fmt: skip
    made = move(old, Done(), OK, NOW).successor
    assert made is not None
    assert made == Task(
        service="work", data='{"a":1}', priority=1, due=1020.0, max_attempts=9, key="k", parent=5, active_s=5.0,
        timeout_s=6.0, timing=repeating(),
    )  # fmt: skip


def test_the_last_failure_counts_and_ends_a_row_of_deaths() -> None:
    made = move(task(attempts=2, deaths=2, suspect=True), Dead("failed"), FAILED, NOW)
    assert (made.attempts, made.deaths, made.suspect, made.ended) == (3, 0, False, NOW)


@pytest.mark.parametrize(
    ("every_s", "origin", "sense"),
    [
        (LONGEST_S, 900.0, True),
        (LONGEST_S + 1, 900.0, False),
        (0.0, 900.0, False),
        (60.0, 0.0, True),
        (60.0, 0.5, True),
        (60.0, -1.0, False),
        (60.0, 1e11, False),
    ],
)
def test_a_plan_that_makes_no_sense_is_none(every_s: float, origin: float, sense: bool) -> None:
    assert (plan_of(repeating(every_s, origin)) is not None) is sense


def test_the_last_time_that_is_no_mistake_is_none() -> None:
    assert isinstance(judge(asks(Again(1e11))), Retry)
    assert judge(asks(Again(1e11 - 1))) == Again(1e11 - 1)


def unsound(_: Any) -> float:
    raise RuntimeError("no wait today")


@pytest.mark.parametrize("wait", [unsound, lambda _: float("nan")])
def test_a_wait_that_fails_or_is_no_number_is_as_good_as_none(wait: Any) -> None:
    verdict = judge(FAILED, Service(name="work", backoff=wait))
    assert isinstance(verdict, Retry)
    assert NOW + 0.9 <= verdict.at <= NOW + 1


def test_a_wait_of_the_users_own_holds() -> None:
    for wait_s in (0.1, 600.0):
        verdict = judge(FAILED, Service(name="work", backoff=lambda _, wait_s=wait_s: wait_s))
        assert isinstance(verdict, Retry)
        assert NOW + 0.9 * wait_s <= verdict.at <= NOW + wait_s


class Shy:
    def __repr__(self) -> str:
        raise RuntimeError("not for you")


def test_an_object_that_cannot_be_shown_is_told_by_its_kind() -> None:
    made = move(task(), Done(), Result(outcome=Outcome.OK, value=Shy()), NOW).output
    assert made == '"an object of Shy"'


def test_an_output_of_just_the_limit_is_whole() -> None:
    whole = "x" * (64 * 1024 - 2)  # and its quotes
    assert move(task(), Done(), Result(outcome=Outcome.OK, value=whole), NOW).output == f'"{whole}"'
    longer = move(task(), Done(), Result(outcome=Outcome.OK, value=f"{whole}x"), NOW).output
    assert longer is not None
    assert longer.endswith('x..."')


def test_an_error_and_a_reason_are_cut() -> None:
    result = Result(outcome=Outcome.FAILED, info="i" * 300, error="e" * 20_000)
    made = move(task(), Dead("r" * 300), result, NOW)
    assert (made.error, made.reason) == ("e" * 16 * 1024, "r" * 200)
    assert move(task(), Retry(2000.0), result, NOW).history[-1].info == "i" * 200


def test_a_text_with_a_zero_in_it_is_one_that_every_store_takes() -> None:
    assert move(task(), Dead("a\0b"), FAILED, NOW).reason == "a\\0b"


def test_what_is_to_come_again_has_no_error() -> None:
    assert move(task(), Again(2000.0), FAILED, NOW).error is None


@pytest.mark.parametrize("tries", [3, 30])
def test_one_that_has_repeated_does_so_no_more_however_often_it_is_tried_again(tries: int) -> None:
    one = task(timing='{"every_s": 60.0, "origin": 900.0}')
    ended = move(one, Done(), OK, NOW)
    assert ended.successor is not None
    one = msgspec.structs.replace(one, history=ended.history, max_attempts=None)
    for _ in range(tries):
        again = once_repeated(one)
        assert again.timing is None
        one = msgspec.structs.replace(one, history=move(again, Retry(NOW), FAILED, NOW).history)
    assert len(one.history) == min(tries + 1, 20)
    assert once_repeated(task(timing=one.timing, history=one.history[1:])).timing is not None


def test_the_end_of_a_series_can_begin_it_anew() -> None:
    one = task(timing='{"every_s": 60.0, "origin": 900.0}')
    assert once_repeated(msgspec.structs.replace(one, history=move(one, Skipped(CANCELLED), OK, NOW).history)) == one


def test_of_several_lines_that_say_that_it_has_repeated_the_latest_is_kept() -> None:
    said = [Try(start=None, end=float(number), verdict="repeated") for number in range(2)]
    tries = [Try(start=NOW, end=NOW + number, verdict="retry") for number in range(LIVES)]
    moved = move(task(history=(*said, *tries), max_attempts=None), Retry(NOW), FAILED, NOW)
    assert moved.history[0] == said[1]
    assert [line.verdict for line in moved.history[1:]] == ["retry"] * (LIVES - 1)
    among = (*tries[:9], said[0], *tries[:10])
    assert move(task(history=among, max_attempts=None), Retry(NOW), FAILED, NOW).history[:-1] == among[1:]


def test_what_rows_already_say_of_a_repetition_is_understood() -> None:
    assert REPEATED == "repeated"
    once = Try(start=None, end=NOW, verdict="repeated")
    assert once_repeated(task(timing="{}", history=(once,))).timing is None
