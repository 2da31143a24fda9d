"""Which queues may have something due: whatever is heard, in whatever order, nothing that is due stays unseen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raptor.horizon import DUE_TIMES, Horizon


class Stock:
    """A store, as far as due times go."""

    def __init__(self) -> None:
        self.ready: list[tuple[str, float]] = []

    def upcoming(self, names: list[str], after: float, limit: int) -> list[tuple[str, float]]:
        found = sorted((due, name) for name, due in self.ready if name in names and due > after)
        return [(name, due) for due, name in found[:limit]]

    def take(self, names: set[str], now: float) -> list[tuple[str, float]]:
        taken = [entry for entry in self.ready if entry[0] in names and entry[1] <= now]
        self.ready = [entry for entry in self.ready if entry not in taken]
        return taken


def look(horizon: Horizon, stock: Stock, now: float) -> list[tuple[str, float]]:
    """One turn of a worker: what is hot is taken, what is far is asked for."""
    horizon.advance(now)
    hot, horizon.hot = set(horizon.hot), set()
    taken = stock.take(hot, now)
    if horizon.far:
        names, since, limit = horizon.ask()
        horizon.told(names, stock.upcoming(names, since, limit), limit)
    return taken


puts = st.lists(
    st.tuples(
        st.integers(0, 20),  # when they are put
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30)), min_size=1, max_size=5),
    ),
    max_size=12,
)


@given(puts)
def test_each_is_taken_the_moment_it_is_due_however_the_news_come(
    batches: list[tuple[int, list[tuple[str, int]]]],
) -> None:
    horizon, stock = Horizon(0.0), Stock()
    taken: dict[tuple[str, float], list[float]] = {}
    expected: list[tuple[str, float, float]] = []
    moments = sorted({float(at) for at, _ in batches} | {float(n) for n in range(60)})
    for now in moments:
        for at, entries in batches:
            if at != now:
                continue
            stock.ready += [(name, float(due)) for name, due in entries]
            expected += [(name, float(due), max(now, float(due))) for name, due in entries]
            earliest: dict[str, float] = {}
            for name, due in entries:  # the bell tells of the earliest only
                earliest[name] = min(float(due), earliest.get(name, float(due)))
            horizon.hear(earliest, now)
        upcoming = horizon.next()
        if horizon.hot or horizon.far or (upcoming is not None and upcoming <= now):
            for name, due in look(horizon, stock, now):
                taken.setdefault((name, due), []).append(now)
    for name, due, when in expected:
        assert when in taken[name, due], (name, due, when, taken)
    assert not stock.ready


def test_the_number_of_due_times_is_bounded_whatever_is_heard() -> None:
    horizon = Horizon(0.0)
    for n in range(20_000, 0, -1):
        horizon.hear({f"q{n % 7}": float(n)}, 0.0)
        if n % 100 == 0:
            look(horizon, Stock(), 0.0)
        assert len(horizon) <= 5 * DUE_TIMES


def test_what_lies_behind_the_horizon_is_asked_for_in_time() -> None:
    horizon, stock = Horizon(0.0, ["a", "b"]), Stock()
    stock.ready = [("a", float(n)) for n in range(1, 3001)] + [("b", 1500.5), ("b", 2999.5)]
    seen: list[tuple[str, float]] = []
    now = 0.0
    for _ in range(10_000):
        seen += look(horizon, stock, now)
        assert len(horizon) <= 2 * DUE_TIMES
        following = horizon.next()
        if following is None:
            break
        now = max(now, following)
    assert len(seen) == 3002
    assert not stock.ready


def test_what_becomes_due_between_the_taking_and_the_asking_is_seen() -> None:
    horizon, stock = Horizon(0.0, ["a"]), Stock()
    look(horizon, stock, 0.0)
    stock.ready = [("a", 1.0), ("a", 2.0)]
    horizon.hear({"a": 1.0}, 0.0)
    horizon.hear({"a": 2.0}, 0.0)
    horizon.advance(1.0)
    hot, horizon.hot = set(horizon.hot), set()
    assert stock.take(hot, 1.0) == [("a", 1.0)]
    horizon.advance(3.0)  # it took its time
    assert look(horizon, stock, 3.0) == []
    following = horizon.next()
    assert following is not None
    assert look(horizon, stock, max(3.0, following)) == [("a", 2.0)]


def test_a_clock_that_is_set_back_asks_anew() -> None:
    horizon = Horizon(100.0, ["a"])
    look(horizon, Stock(), 100.0)
    assert not horizon.far
    horizon.advance(50.0)
    assert horizon.far == {"a"}


def test_named_queues_are_the_only_ones() -> None:
    horizon = Horizon(0.0, ["a"])
    assert not horizon.hear({"b": 0.0}, 1.0)
    assert not horizon.learn(["b"])
    assert list(horizon.names) == ["a"]


def test_those_who_were_served_go_last() -> None:
    horizon = Horizon(0.0, ["a", "b", "c"])
    horizon.served(["a"])
    assert list(horizon.names) == ["b", "c", "a"]
