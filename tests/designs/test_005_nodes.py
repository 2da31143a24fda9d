"""Issue 5: what the nodes of one store know of each other, commands from anywhere, and a store that does not answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raptor.commands import exit_code
from raptor.errors import AlreadyRunning, CallTimeout, NotRunning, NotWritten
from raptor.rows import LEASE_S, ServiceTiming
from raptor.runners import Context
from raptor.state.base import BEAT_S, Presence, Query, Taken, Want
from raptor.task import Run, Slot, State, Task
from raptor.testing.conformance.sample import move
from tests.designs.branch import TEN
from tests.designs.many_world import ManyWorld, One
from tests.designs.world import HOUR

DAY = 24 * HOUR


async def states(many: ManyWorld) -> dict[str, int]:
    found = [str(task.state) for task in await many.image.find(Query(limit=10_000))]
    return {state: found.count(state) for state in set(found)}


# Presence


async def test_status_shows_every_node_wherever_it_is_asked(many: ManyWorld) -> None:
    many.service("work")
    one = await many.start("one", "work")
    two = await many.start("two")
    await many.until(11)
    for answer in (await one.status(), await two.status(), await many.elsewhere("status")):
        shown = [node["schedulers"]["main"] for node in answer["nodes"] if node["alive"]]
        assert sorted(shown) == ["running", "standby"]
    assert sorted(node["here"] for node in (await two.status())["nodes"]) == [False, True]
    (main,) = (await many.elsewhere("status", name="main"))["schedulers"]
    assert (main["state"], main["periodic_services"]) == ("running", ["work"])
    assert main["owner"]


async def test_a_node_that_is_gone_is_marked_and_one_that_ended_in_order_is_not_shown(many: ManyWorld) -> None:
    one, two, three = [await many.boot(label) for label in ("one", "two", "three")]
    await many.until(7)
    await many.crash(one)
    await many.stop(two)
    await many.until(7 + 2 * BEAT_S)
    shown = {(node["alive"], node["here"]) for node in (await three.status())["nodes"]}
    assert shown == {(False, False), (True, True)}
    assert len(three.happened("node_left")) == 2


async def test_the_trees_of_all_nodes_are_shown(many: ManyWorld) -> None:
    one = await many.boot("one")
    await many.boot("two")
    await many.until(11)
    answer = await one.call("tree")
    assert answer["name"] == "node"
    assert [node["tree"]["name"] for node in answer["nodes"]] == ["node"]
    assert len((await many.elsewhere("tree"))["nodes"]) == 2


async def test_a_node_at_rest_asks_no_more_than_its_heartbeat(many: ManyWorld) -> None:
    many.service("work")
    nodes = [await many.start("one", "work", interval="1d"), await many.start("two")]
    await many.until(10 * 60)
    for node in nodes:
        node.door.calls.clear()
    await many.until(11 * 60)
    assert [node.door.calls for node in nodes] == [["appear"] * 12] * 2
    assert [await node.state() for node in nodes] == ["running", "standby"]


# Tasks


async def test_the_tasks_of_a_dead_node_come_back_at_once(many: ManyWorld) -> None:
    many.service("slow", takes=20.0)
    one = await many.boot("one")
    await many.until(1)
    for _ in range(5):
        await one.put("slow")
    await many.until(2)
    await many.boot("two")
    await many.until(3)
    await many.crash(one)
    await many.until(3 + 2 * BEAT_S)
    assert [node for node, _ in many.runs("slow")].count("two") == 1  # the others after it, one at a time
    await many.until(150)
    assert [node for node, _ in many.runs("slow")].count("two") == 5
    assert await states(many) == {"done": 5}


async def test_the_tasks_of_a_node_that_stands_still_come_back_when_their_lease_ends(many: ManyWorld) -> None:
    many.service("slow", takes=20.0)
    one = await many.boot("one")
    await one.call("queue", name="default", lease="3s")
    two = await many.boot("two")
    await many.until(300)  # at rest, and nobody in doubt
    two.door.calls.clear()
    await many.until(330)
    assert set(two.door.calls) == {"appear"}
    await one.put("slow")
    await many.until(331)
    (line,) = many.lines
    first, second = (one, two) if line.node == "one" else (two, one)
    first.door.open.clear()
    await many.until(331 + 4 * BEAT_S)
    assert [node for node, _ in many.runs("slow")] == [first.label, second.label]
    first.door.open.set()
    await many.until(400)
    assert len(many.runs("slow")) == 2
    (task,) = await many.image.find(Query())
    assert (task.state, task.fence) == (State.DONE, 2)


async def test_the_tasks_of_the_living_stay_theirs(many: ManyWorld) -> None:
    many.service("slow", takes=300.0)
    one = await many.boot("one")
    await many.boot("two")
    await many.until(1)
    await one.put("slow")
    await many.until(400)
    assert len(many.runs("slow")) == 1
    assert await states(many) == {"done": 1}


async def test_a_limit_of_a_queue_holds_over_all_nodes_and_after_the_end_of_one(many: ManyWorld) -> None:
    many.service("work", takes=10.0)
    one = await many.boot("one")
    await many.boot("two")
    await one.call("queue", name="default", concurrency=2)
    for _ in range(12):
        await one.put("work")
    await many.until(25)
    await many.stop(one)
    await many.until(200)
    assert await states(many) == {"done": 12}
    begun = sorted(line.start for line in many.lines)
    assert all(later - earlier >= 10.0 for earlier, later in zip(begun, begun[2:], strict=False))


async def test_a_running_task_is_cancelled_from_anywhere(many: ManyWorld) -> None:
    many.service("slow", takes=1000.0)
    await many.boot("one")
    placed = await many.elsewhere("put", service="slow")
    await many.until(5)
    assert (await many.elsewhere("cancel", ids=[placed["id"]]))["ending"] == [placed["id"]]
    await many.until(5.1)
    (task,) = await many.image.find(Query())
    assert task.state is State.CANCELLED


async def test_a_task_that_is_cancelled_before_its_node_hears_that_it_has_it_never_begins(many: ManyWorld) -> None:
    many.service("work")
    one: Any = await many.boot("one")

    async def take_slowly(*args: Any, **kwargs: Any) -> Taken:
        taken = await many.image.take(*args, **kwargs)
        await many.clock.sleep(10.0)
        return taken

    one.door.take = take_slowly
    placed = await many.elsewhere("put", service="work")
    await many.until(5)
    assert (await many.elsewhere("cancel", ids=[placed["id"]]))["ending"] == [placed["id"]]
    await many.until(20)
    (task,) = await many.image.find(Query())
    assert (task.state, many.lines) == (State.CANCELLED, [])


async def test_a_task_of_a_node_that_is_just_back_is_left_to_it(many: ManyWorld) -> None:
    many.service("work")
    one = await many.boot("one")
    two = Presence(owner="two", name="two", host="h", pid=2, version="1", started=TEN)
    await many.image.appear(two, now=TEN)
    await many.until(2 * LEASE_S + 2)  # by the heartbeats of one the other is gone
    await many.image.appear(two, now=many.clock.now())
    await many.image.put([Task(service="work", due=many.clock.now())], now=many.clock.now())
    await many.image.take([Want(queue="default", room=1, lease_s=LEASE_S)], owner="two", now=many.clock.now())
    await one.new_lines()  # which has it look at leases, before its next heartbeat
    await many.until(2 * LEASE_S + BEAT_S)
    (task,) = await many.image.find(Query())
    assert (task.owner, task.fence) == ("two", 1)


async def test_the_end_of_a_task_is_waited_for_wherever_it_runs(many: ManyWorld) -> None:
    many.service("slow", takes=30.0)
    one = await many.boot("one")
    handle = await one.put("slow")
    await many.until(1)
    two = await many.boot("two")
    for waiting in (two.call("wait", id=handle.id), many.elsewhere("wait", id=handle.id)):
        assert (await waiting)["state"] == "done"
    again = await one.put("slow")
    with pytest.raises(CallTimeout):
        await many.elsewhere("wait", id=again.id, timeout_s=10.0)


# Commands


async def test_a_list_that_is_set_elsewhere_is_looked_at_at_once(many: ManyWorld) -> None:
    many.service("a")
    many.service("b")
    one = await many.start("one", "a")
    await many.start("two")
    await many.until(10)
    answer = await many.elsewhere("schedule", name="main", services=["b"], add=True)
    assert answer["running"]
    assert answer["owner"]
    await many.until(10.1)
    assert many.runs("b") == [("one", 10.0)]
    assert (await one.status("main"))["schedulers"][0]["periodic_services"] == ["a", "b"]


async def test_pause_and_resume_reach_the_owner_from_elsewhere(many: ManyWorld) -> None:
    many.service("a")
    one = await many.start("one", "a", interval="1m")
    two = await many.start("two")
    await many.until(10)
    await two.pause("main")
    await many.until(200)
    assert await one.state() == "paused"
    assert len(many.runs("a")) == 1
    await many.elsewhere("resume", name="main")
    await many.until(400)
    assert await one.state() == "running"
    assert len(many.runs("a")) > 1


async def shared_and_paused(many: ManyWorld, takes: float = 0.0) -> One:
    """A service on the lists of two schedulers, whose nodes both are there; that of the first is held."""
    many.service("a", every_s=HOUR, takes=takes)
    one = await many.start("one", "a", interval="auto")
    two = await many.boot("two")
    await two.start("beat", "auto")
    await two.schedule("beat", ["a"])
    await many.until(10)
    await one.pause("main")
    return one


async def test_no_node_begins_a_service_whose_slots_a_resume_is_closing(
    many: ManyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await shared_and_paused(many)
    two, record = many.nodes[1], many.image.record

    async def slowly(slots: list[Slot], runs: list[Run], **kwargs: Any) -> None:
        if any(slot.reason == "paused" for slot in slots):
            two.door.open.set()  # in the middle of it the other comes to the slot
            await many.clock.sleep(2.0)
        await record(slots, runs, **kwargs)

    monkeypatch.setattr(many.image, "record", slowly)
    await many.until(HOUR - 1)
    two.door.open.clear()
    await many.until(HOUR + 1)
    await one.resume("main")
    await many.until(HOUR + 30)
    slots = await many.image.slots("a", since=TEN + HOUR, until=TEN + HOUR)
    assert [(slot.verdict, slot.reason) for slot in slots] == [("skipped", "paused")]
    assert many.slots("a") == [0.0]
    assert await many.image.holders("service:") == {}
    await many.close()


async def test_a_resume_leaves_a_slot_to_the_node_that_runs_it(many: ManyWorld) -> None:
    one = await shared_and_paused(many, takes=100.0)
    await many.until(HOUR + 50)
    assert many.slots("a") == [0.0, HOUR]
    await one.resume("main")
    await many.until(HOUR + 200)
    slots = await many.image.slots("a", since=TEN, until=TEN + HOUR)
    assert [slot.verdict for slot in slots] == ["done", "done"]
    await many.close()


async def test_stopping_a_scheduler_elsewhere_ends_it_on_every_node(many: ManyWorld) -> None:
    many.service("a", takes=3.0)
    one = await many.start("one", "a", interval="10s")
    two = await many.start("two")
    await many.until(21)
    assert (await many.elsewhere("stop", name="main"))["ended"] is True
    assert 23 <= many.clock.now() - TEN < 25  # what ran was waited for
    await many.until(30)
    assert one.scheduler("main") is None
    assert two.scheduler("main") is None
    assert many.lines[-1].end is not None  # what ran was let finish
    await many.until(200)
    assert many.runs("a")[-1] == ("one", 20.0)
    with pytest.raises(NotRunning):
        await many.elsewhere("stop", name="main")
    await two.start("main")
    await many.until(210)
    assert await two.state() == "running"


async def test_a_service_that_is_made_due_elsewhere_runs_at_once(many: ManyWorld) -> None:
    many.service("a", every_s=DAY)
    await many.start("one", "a", interval="auto")
    await many.until(100)
    await many.elsewhere("reset", service="a")
    await many.until(101)
    assert many.runs("a") == [("one", 0.0), ("one", 100.0)]


async def test_a_service_that_another_node_runs_is_not_run_by_hand(many: ManyWorld) -> None:
    many.service("slow", takes=100.0)
    await many.start("one", "slow")
    two = await many.boot("two")
    await many.until(10)
    with pytest.raises(AlreadyRunning):
        await many.elsewhere("run", service="slow")
    with pytest.raises(AlreadyRunning):
        await two.run("slow")
    await many.until(150)
    assert (await two.run("slow"))["outcome"] == "ok"
    assert await many.image.holders("service:") == {}


async def test_without_standby_the_owner_is_named(many: ManyWorld) -> None:
    many.service("a")
    one = await many.start("one", "a")
    two = await many.boot("two")
    await many.until(6)
    with pytest.raises(AlreadyRunning) as refused:
        await two.call("start", name="main", standby=False)
    assert (await one.status())["nodes"][0]["name"] in str(refused.value)
    assert exit_code(refused.value) == 5
    assert two.scheduler("main") is None


async def test_a_plan_that_is_noted_without_a_run_leaves_no_right_behind(many: ManyWorld) -> None:
    many.service("nightly", cron="0 3 * * *", timezone="UTC")
    await many.start("one", "nightly", interval="auto")
    await many.until(10)
    assert list(await many.image.load("service_timing")) == ["nightly"]
    assert await many.image.holders("service:") == {}


# Outage


async def test_after_an_outage_nobody_is_taken_for_gone_before_it_could_show_itself(many: ManyWorld) -> None:
    """The server has lost the locks of all sessions: whoever is back first must not take what others run."""
    many.service("a", takes=300.0)
    many.service("job", takes=300.0)
    one = await many.start("one", "a", interval="10s")
    await one.put("job")
    await many.until(1)
    two = await many.start("two")
    await many.until(11)
    for node in (one, two):
        node.door.failing = True
        many.image.sever(node.owner)
    await many.until(11 + 2 * LEASE_S)
    two.door.failing = False
    await many.until(11 + 2 * LEASE_S + BEAT_S + 1)
    one.door.failing = False
    await many.until(500)
    assert many.runs("a")[0] == ("one", 0.0)
    assert [node for node, _ in many.runs("job")] == ["one"]
    assert not one.happened("ownership_lost")
    assert not two.happened("node_left")
    assert (await states(many))["done"] == 1


async def test_nodes_live_through_a_store_that_does_not_answer(many: ManyWorld) -> None:
    many.service("a", takes=5.0)
    many.service("job", takes=5.0)
    one = await many.start("one", "a", interval="10s")
    two = await many.start("two")
    await many.until(31)
    handle = await one.put("job")
    await many.until(32)
    for node in (one, two):
        node.door.failing = True
    await many.until(32 + 50)
    answer = await one.status()
    assert "nobody answers" in answer["degraded"]
    assert one.happened("store_lost")
    assert one.root.alive
    assert two.root.alive
    for node in (one, two):
        node.door.failing = False
    await many.until(200)
    assert one.happened("store_back")
    assert (await one.status())["degraded"] is None
    assert sorted([await one.state(), await two.state()]) == ["running", "standby"]
    (task,) = await many.image.find(Query(ids=(handle.id,)))
    assert task.state is State.DONE
    assert len(many.runs("job")) == 1  # what finished meanwhile was settled when the store was back
    slots = many.slots("a")
    assert slots == sorted(set(slots))


async def test_status_is_answered_from_the_first_moment_of_an_outage(many: ManyWorld) -> None:
    many.service("a")
    one = await many.start("one", "a")
    await many.until(7)
    one.door.failing = True
    answer = await one.status()
    assert "nobody answers" in answer["degraded"]
    assert [one["state"] for one in answer["schedulers"]] == ["running"]


async def test_an_outage_longer_than_a_lease_ends_nobody(many: ManyWorld) -> None:
    many.service("a", takes=5.0)
    nodes = [await many.start(label, *(["a"] if label == "one" else []), interval="10s") for label in ("one", "two")]
    await many.until(33)
    for node in nodes:
        node.door.failing = True
    await many.until(33 + 5 * LEASE_S)
    for node in nodes:
        node.door.failing = False
    await many.until(600)
    assert all(node.root.alive for node in nodes)
    assert not any(node.happened("gave_up") for node in nodes)
    assert sorted([await node.state() for node in nodes]) == ["running", "standby"]
    assert len([start for _, start in many.runs("a") if start > 400]) >= 19


async def test_a_node_that_starts_a_worker_or_a_scheduler_in_an_outage_waits(many: ManyWorld) -> None:
    many.service("a")
    one = await many.start("one", "a", interval="10s")
    await many.until(5)
    one.door.failing = True
    scheduler, worker = one.scheduler("main"), one.runtime.whereis("worker")
    assert scheduler is not None
    assert worker is not None
    scheduler.kill()
    worker.kill()
    await many.until(100)
    one.door.failing = False
    await many.until(200)
    assert await one.state() == "running"
    assert one.root.alive
    await one.put("a")
    await many.until(201)
    assert (await states(many)).get("done") == 1


def test_a_store_that_is_not_reached_is_exit_3() -> None:
    assert exit_code(NotWritten("unreachable", "the store", "nobody answers")) == 3
    assert exit_code(NotWritten("full", "the store", "no space")) == 6


async def test_a_store_of_one_process_is_asked_for_none_of_this(clock: Any) -> None:
    from raptor.state.memory import MemoryStore

    many = ManyWorld(clock, image=MemoryStore())
    many.service("a")
    one = await many.start("one", "a", interval="10s")
    await many.until(100)
    assert not {"claim", "release", "appear", "holders", "nodes"} & set(one.door.calls)
    assert "nodes" not in await one.status()
    assert len(many.runs("a")) == 11


async def test_a_node_at_rest_shows_itself_and_asks_for_nothing_else(many: ManyWorld) -> None:
    """Nobody held a task when it came: there is no lease to wait for."""
    many.service("work")
    one = await many.boot("one")
    await many.until(1)
    await one.put("work")
    await many.until(10)
    one.door.calls.clear()
    await many.until(70)
    assert set(one.door.calls) == {"appear"}
    assert len(one.door.calls) <= 12
    await many.close()


# Taking over


async def test_whoever_takes_over_passes_the_slot_of_an_interrupted_service_for_good(many: ManyWorld) -> None:
    many.service("work", takes=1000.0, on_crash="skip")
    one = await many.start("one", "work")
    await many.until(1)
    one.door.failing = True  # it hangs: its rights end with their leases, not with its connection
    await many.until(LEASE_S - 3)
    await many.start("two")
    await many.until(LEASE_S + 2 * BEAT_S)
    row = (await many.image.load("service_timing"))["work"]
    assert isinstance(row, ServiceTiming)
    (slot,) = await many.image.slots("work", since=0.0, until=1e12)
    assert (slot.verdict, slot.reason, row.next_due) == ("skipped", "interrupted", slot.planned + HOUR)
    assert [node for node, _ in many.runs("work")] == ["one"]
    await many.close()


# Leases


ABOUT_TASKS = frozenset({"put", "take", "settle", "extend", "find", "upcoming", "queues", "stat", "cancel"})


@pytest.mark.parametrize("lasts", [*range(61, 190, 4)])
async def test_what_runs_is_not_taken_from_anybody_when_its_table_was_locked_for_longer_than_a_lease(
    many: ManyWorld, lasts: int
) -> None:
    """Nodes go on to see each other, and each renews its leases before anybody looks for those that have lapsed."""
    many.service("slow", takes=600.0)
    one = await many.boot("one")
    await many.until(1)
    for _ in range(2):
        await one.put("slow")
    await many.until(13)
    two = await many.boot("two")
    await many.until(100)
    for node in (one, two):
        node.door.locked = ABOUT_TASKS
    await many.until(100 + lasts)
    for node in (one, two):
        node.door.locked = frozenset()
    await many.until(1500)
    assert len(many.runs("slow")) == 2
    await many.close()


@pytest.mark.parametrize("stubborn_s", [0.0, 30.0])
async def test_a_node_that_takes_again_what_it_still_runs_keeps_the_second_run(
    many: ManyWorld, stubborn_s: float
) -> None:
    """It was cut off for longer than a lease, and a node of other queues brought its task back."""
    began: list[int] = []

    async def slow(ctx: Context) -> None:
        assert ctx.task is not None
        began.append(ctx.task.fence)
        try:
            await many.clock.sleep(300.0)
        except asyncio.CancelledError:
            await many.clock.sleep(stubborn_s)  # as a thread would
            raise

    many.service("slow", function=slow)
    one = await many.boot("one")
    await many.until(1)
    await one.put("slow")
    await many.until(2)
    one.door.open.clear()
    await many.until(LEASE_S + 30)
    (lapsed,) = await many.image.find(Query(lapsed=many.clock.now()))
    now = many.clock.now()
    assert not await many.image.settle([move(lapsed, State.READY, due=now)], now=now)
    await many.until(LEASE_S + 40)
    one.door.open.set()
    await many.until(LEASE_S + 240)
    (task,) = await many.image.find(Query())
    assert (task.state, task.fence) == (State.TAKEN, 2)
    assert task.lease is not None
    assert task.lease > many.clock.now()
    await many.until(LEASE_S + 400)
    assert began == [1, 2]
    assert await states(many) == {"done": 1}
    await many.close()
