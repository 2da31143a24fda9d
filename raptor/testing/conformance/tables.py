"""What a store promises of its tables and its ledger, whatever it is made of."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from raptor.rows import CycleResult, Definition, Line, Scheduled, SchedulerState, ServiceTiming
from raptor.state.base import TABLES, Store
from raptor.task import Outcome, Run, Slot

TEXTS = ["", "naïve ☕ \N{PILE OF POO} \x00 end", 'quote " and \\ and \n line', "x" * 3_000_000]


def timing(due: float = 1000.0, **more: object) -> ServiceTiming:
    return msgspec.structs.replace(ServiceTiming(next_due=due), **more)


def run(id: str, service: str = "a", start: float = 0.0, outcome: Outcome = Outcome.OK) -> Run:
    return Run(
        id=id, service=service, scheduler="main", planned=start, attempt=1, start=start, end=start + 1, outcome=outcome
    )


def slot(planned: float, service: str = "a", last: float | None = None, verdict: str = "done") -> Slot:
    end = planned if last is None else last
    return Slot(service=service, planned=planned, last=end, verdict=verdict, recorded=planned + 1)


class TestTables:
    @pytest.mark.parametrize("table", TABLES)
    async def test_a_table_begins_empty(self, store: Store, table: str) -> None:
        assert await store.load(table) == {}

    @pytest.mark.spec("004-01", "004-02")
    async def test_a_service_has_one_timing_record_whichever_scheduler_wrote_it(self, store: Store) -> None:
        first = timing(5.0, last_run_timestamp=1_700_000_000, interval_seconds=3600.0, origin=1.5, last_run_id="r1")
        second = timing(6.0, last_run_timestamp=1_700_003_600, interval_seconds=86400.0, failures=2, retry_at=9.25)
        await store.save([("service_timing", "backup", first)])
        assert await store.load("service_timing") == {"backup": first}
        await store.save([("service_timing", "backup", second)])
        assert await store.load("service_timing") == {"backup": second}

    @pytest.mark.spec("004-06", "004-07")
    async def test_the_state_of_a_cycle_is_kept_by_the_name_of_its_scheduler(self, store: Store) -> None:
        result = CycleResult(run=run("r1"), verdict="done")
        state = SchedulerState(
            cycle="c1",
            slot=10.0,
            started=10.5,
            services_queue=("b", "c"),
            current_service="a",
            current_run=run("r2"),
            results=(result,),
        )
        await store.save([("scheduler_state", "main", state), ("scheduler_state", "nightly", state)])
        assert await store.load("scheduler_state") == {"main": state, "nightly": state}

    @pytest.mark.spec("004-08")
    async def test_the_state_of_a_cycle_can_be_deleted_and_the_timing_stays(self, store: Store) -> None:
        state = SchedulerState(cycle="c1", slot=1.0, started=1.0, services_queue=())
        await store.save([("service_timing", "a", timing()), ("scheduler_state", "main", state)])
        await store.save([("scheduler_state", "main", None)])
        assert await store.load("scheduler_state") == {}
        assert await store.load("service_timing") == {"a": timing()}

    async def test_deleting_what_is_not_there_is_no_error(self, store: Store) -> None:
        await store.save([("scheduler_state", "main", None), ("definitions", "main", None)])
        assert await store.load("scheduler_state") == {}

    async def test_saving_nothing_is_no_error(self, store: Store) -> None:
        await store.save([])
        await store.record([], [])

    async def test_a_definition_is_kept_whole(self, store: Store) -> None:
        services = (Scheduled(name="a", every_s=3600.0), Scheduled(name="b", cron="30 2 * * *"))
        main = Definition(name="main", interval_s=60.0, services=services, paused_services=("b",), should_run=True)
        await store.save([("definitions", "main", main), ("definitions", "other", Definition(name="other"))])
        await store.save([("definitions", "other", None)])
        assert await store.load("definitions") == {"main": main}

    async def test_a_queue_is_kept_as_it_was_set(self, store: Store) -> None:
        mail = Line(name="mail", paused=True, note="holidays", concurrency=2, rate=10, per_s=60.0, max_attempts=None)
        await store.save([("lines", "mail", mail), ("lines", "other", Line(name="other"))])
        await store.save([("lines", "other", None), ("definitions", "mail", Definition(name="mail"))])
        assert await store.load("lines") == {"mail": mail}
        assert await store.load("definitions") == {"mail": Definition(name="mail")}

    async def test_the_last_change_of_a_record_counts(self, store: Store) -> None:
        await store.save([("service_timing", "a", timing(1.0)), ("service_timing", "b", timing(2.0))])
        await store.save(
            [("service_timing", "a", timing(3.0)), ("service_timing", "b", None), ("service_timing", "a", timing(4.0))]
        )
        assert await store.load("service_timing") == {"a": timing(4.0)}

    async def test_records_come_in_the_order_of_their_last_change(self, store: Store) -> None:
        await store.save([("service_timing", name, timing()) for name in "cab"])
        await store.save([("service_timing", "c", timing(2.0))])
        assert list(await store.load("service_timing")) == ["a", "b", "c"]

    @pytest.mark.parametrize("text", TEXTS, ids=["empty", "unicode", "quotes", "large"])
    async def test_any_text_comes_back_as_it_was(self, store: Store, text: str) -> None:
        key = text[:100].replace("\0", "")  # no name of a service has that in it
        noted = timing(last_info=text)
        await store.save([("service_timing", key, noted)])
        assert await store.load("service_timing") == {key: noted}
        told = msgspec.structs.replace(run(f"r{key}", service=key), info=text, error=text, tail=text)
        await store.record([slot(1.0, service=key)], [told])
        assert await store.history(key) == [told]
        assert await store.slots(key, since=0.0, until=2.0) == [slot(1.0, service=key)]

    async def test_what_was_loaded_is_not_a_view(self, store: Store) -> None:
        await store.save([("service_timing", "a", timing())])
        loaded = await store.load("service_timing")
        loaded.clear()
        assert await store.load("service_timing") == {"a": timing()}

    async def test_concurrent_saves_are_all_there_when_they_return(self, store: Store) -> None:
        async def one(number: int) -> None:
            for step in range(5):
                key, record = f"s{number}", timing(float(step), last_info=str(number))
                await store.save([("service_timing", key, record)])
                assert (await store.load("service_timing"))[key] == record

        await asyncio.gather(*(one(number) for number in range(40)))
        loaded = await store.load("service_timing")
        assert loaded == {f"s{number}": timing(4.0, last_info=str(number)) for number in range(40)}

    async def test_a_cancelled_save_does_not_disturb_the_others(self, store: Store) -> None:
        saves = [asyncio.ensure_future(store.save([("service_timing", f"s{n}", timing(float(n)))])) for n in range(20)]
        await asyncio.sleep(0)
        for save in saves[::2]:
            save.cancel()
        await asyncio.gather(*saves, return_exceptions=True)
        loaded = await store.load("service_timing")
        assert {f"s{n}" for n in range(1, 20, 2)} <= loaded.keys()

    async def test_an_unknown_table_is_refused(self, store: Store) -> None:
        with pytest.raises(KeyError):
            await store.load("services")
        with pytest.raises(KeyError):
            await store.save([("services", "a", timing())])


class TestLedger:
    async def test_a_ledger_line_is_recorded_once(self, store: Store) -> None:
        await store.record([slot(1.0)], [run("r1", start=1.0)])
        await store.record([slot(1.0, verdict="failed"), slot(2.0)], [run("r1", start=9.0), run("r2", start=2.0)])
        assert await store.history() == [run("r2", start=2.0), run("r1", start=1.0)]
        assert await store.slots("a", since=0.0, until=9.0) == [slot(1.0), slot(2.0)]

    async def test_a_range_of_slots_takes_the_place_of_a_shorter_one_that_it_extends(self, store: Store) -> None:
        await store.record([slot(1.0, last=2.0, verdict="missed"), slot(5.0)], [])
        await store.record([slot(1.0, last=3.0, verdict="missed"), slot(5.0, last=9.0, verdict="missed")], [])
        await store.record([slot(1.0, last=2.5, verdict="missed"), slot(1.0, last=2.0, verdict="missed")], [])
        assert await store.slots("a", since=0.0, until=9.0) == [slot(1.0, last=3.0, verdict="missed"), slot(5.0)]

    async def test_one_planned_time_of_two_services_is_two_slots(self, store: Store) -> None:
        await store.record([slot(1.0, "a"), slot(1.0, "b")], [])
        assert await store.slots("a", since=0.0, until=9.0) == [slot(1.0, "a")]
        assert await store.slots("b", since=0.0, until=9.0) == [slot(1.0, "b")]

    async def test_a_whole_number_is_the_same_time_as_its_float(self, store: Store) -> None:
        await store.record([slot(1)], [run("r1", start=1)])
        await store.record([slot(1.0, verdict="failed")], [])
        assert await store.slots("a", since=1, until=1.0) == [slot(1.0)]
        assert await store.history(since=1.0, until=1) == [run("r1", start=1.0)]

    async def test_history_is_filtered_and_comes_newest_first(self, store: Store) -> None:
        bad = [run("r4", "b", 40.0, Outcome.FAILED), run("r5", "a", 50.0, Outcome.TIMED_OUT)]
        runs = [run("r1", "a", 10.0), run("r2", "b", 20.0), run("r3", "a", 30.0), *bad]
        runs.append(run("r6", "b", 60.0, Outcome.INTERRUPTED))
        await store.record([], runs)

        async def ids(service: str | None = None, **filters: object) -> list[str]:
            return [found.id for found in await store.history(service, **filters)]  # type: ignore[arg-type]

        assert await ids() == ["r6", "r5", "r4", "r3", "r2", "r1"]
        assert await ids("a") == ["r5", "r3", "r1"]
        assert await ids(limit=2) == ["r6", "r5"]
        assert await ids(failed=True) == ["r6", "r5", "r4"]
        assert await ids("a", failed=True) == ["r5"]
        assert await ids(since=20.0, until=40.0) == ["r4", "r3", "r2"]
        assert await ids("b", since=21.0) == ["r6", "r4"]
        assert await ids("nobody") == []

    async def test_runs_that_started_together_have_one_order(self, store: Store) -> None:
        await store.record([], [run(f"r{number}", start=5.0) for number in (2, 3, 1)])
        assert [found.id for found in await store.history()] == ["r3", "r2", "r1"]

    async def test_slots_that_touch_a_span_come_oldest_first(self, store: Store) -> None:
        await store.record([slot(50.0), slot(10.0), slot(20.0, last=40.0, verdict="missed")], [])

        async def planned(since: float, until: float, limit: int = 1000) -> list[float]:
            return [found.planned for found in await store.slots("a", since=since, until=until, limit=limit)]

        assert await planned(0.0, 100.0) == [10.0, 20.0, 50.0]
        assert await planned(30.0, 30.0) == [20.0]  # within a range
        assert await planned(40.0, 50.0) == [20.0, 50.0]
        assert await planned(41.0, 49.0) == []
        assert await planned(0.0, 100.0, limit=2) == [10.0, 20.0]

    @pytest.mark.spec("004-03", "004-29")
    async def test_nothing_is_forgotten_unless_asked(self, store: Store) -> None:
        runs = [run(f"r{number:04}", start=float(number)) for number in range(1200)]
        await store.save([("service_timing", "a", timing())])
        await store.record([slot(found.planned) for found in runs], runs)
        assert len(await store.history(limit=5000)) == 1200
        assert await store.prune(before=0.0, keep=2000) == 0
        assert await store.prune(before=1e12, keep=0) == 2400
        assert await store.history() == []
        assert await store.load("service_timing") == {"a": timing()}

    async def test_pruning_by_age_takes_what_is_older(self, store: Store) -> None:
        times = [float(number) for number in range(1500)]
        ranged = slot(1490.0, "b", last=1600.0)
        await store.record([ranged, *(slot(at) for at in times)], [run(f"r{at}", start=at) for at in times])
        assert await store.prune(before=1498.0, keep=1000) == 2 * 1498
        assert [found.start for found in await store.history()] == [1499.0, 1498.0]
        assert [found.planned for found in await store.slots("a", since=0.0, until=1e9)] == [1498.0, 1499.0]
        assert await store.slots("b", since=0.0, until=1e9) == [ranged]  # its end is not that old

    async def test_pruning_by_count_keeps_the_newest_of_each_service(self, store: Store) -> None:
        for service, count in (("busy", 700), ("rare", 2)):
            await store.record(
                [slot(float(number), service) for number in range(count)],
                [run(f"{service}{number}", service, float(number)) for number in range(count)],
            )
        assert await store.prune(before=0.0, keep=3) == 2 * 697
        assert [found.start for found in await store.history("busy")] == [699.0, 698.0, 697.0]
        assert [found.planned for found in await store.slots("busy", since=0.0, until=1e9)] == [697.0, 698.0, 699.0]
        assert len(await store.history("rare")) == 2
