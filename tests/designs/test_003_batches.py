"""Design 003 and 001: handlers of many tasks at once, with typed data and a verdict for each."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from raptor.errors import BadInput
from raptor.runners import Context
from raptor.service import Service
from raptor.task import Done, State, Task
from tests.designs.queue_world import QueueWorld
from tests.designs.world import TEN


class Mail(msgspec.Struct):
    to: str
    size: int = 0


class Post:
    """A batch handler that writes down what it was given."""

    def __init__(self, queues: QueueWorld, answer: Any = None, takes: float = 0.0) -> None:
        self.calls: list[list[Mail]] = []
        self.times: list[float] = []

        async def send(ctx: Context, mails: list[Mail]) -> Any:
            self.calls.append(mails)
            self.times.append(queues.clock.now() - TEN)
            if takes:
                await queues.clock.sleep(takes)
            return answer(ctx, mails) if callable(answer) else answer

        self.service = Service(name="send", function=send, batch=5)
        queues.services.append(self.service)


def mails(*names: str) -> list[dict[str, str]]:
    return [{"to": name} for name in names]


@pytest.mark.spec("003-36", "003-03", "003-42", "001-61", "R3-01")
async def test_tasks_of_one_moment_are_handed_over_together_as_typed_records(queues: QueueWorld) -> None:
    post = Post(queues)
    node = await queues.boot()
    await node.put_many("send", mails(*"abcdefgh"), in_=5)
    await queues.until(10)
    assert [len(call) for call in post.calls] == [5, 3]
    assert post.calls[0][0] == Mail("a", 0)
    assert await queues.states() == [State.DONE] * 8


async def test_one_task_alone_is_a_batch_too(queues: QueueWorld) -> None:
    post = Post(queues)
    node = await queues.boot()
    worker = node.worker
    await node.put("send", {"to": "a"})
    await queues.until(1)
    assert post.calls == [[Mail("a", 0)]]
    assert await queues.states() == [State.DONE]
    assert node.worker is worker, "one that failed would have given it to the next"


@pytest.mark.spec("R3-01", "003-34")
async def test_four_processors_of_batches_of_five_take_twenty_tasks_at_once(queues: QueueWorld) -> None:
    post = Post(queues, takes=10.0)
    node = await queues.boot(processors=4)
    await node.put_many("send", mails(*"abcdefghijklmnopqrstuvwx"))
    await queues.until(5)
    assert [len(call) for call in post.calls] == [5, 5, 5, 5]
    await queues.until(30)
    assert [len(call) for call in post.calls] == [5, 5, 5, 5, 4]


async def test_another_service_in_a_queue_of_batches_gets_no_more_lanes_than_there_are(queues: QueueWorld) -> None:
    Post(queues, takes=10.0)
    queues.service(takes=10.0, queue="elsewhere")
    node = await queues.boot(processors=2)
    await node.put_many("work", range(7), queue="default")
    await queues.until(100)
    assert (queues.most, len(queues.seen)) == (2, 7)
    assert {(task.state, task.attempts) for task in await queues.tasks()} == {(State.DONE, 0)}


@pytest.mark.spec("003-36", "003-37")
async def test_a_list_answers_for_each_task(queues: QueueWorld) -> None:
    def answer(ctx: Context, given: list[Mail]) -> list[Any]:
        fates: dict[str, Any] = {
            "retry": ctx.retry(60),
            "again": ctx.again(60),
            "dead": ctx.give_up("no"),
            "done": Done(),
        }
        return [fates.get(mail.to, mail.to.upper()) for mail in given]

    Post(queues, answer)
    node = await queues.boot()
    ids = await node.put_many("send", mails("a", "retry", "again", "dead", "done"))
    await queues.until(1)
    tasks = [await queues.task(id) for id in ids]
    assert [(task.state, task.output, task.attempts, task.reason) for task in tasks] == [
        (State.DONE, '"A"', 0, ""), (State.READY, None, 1, ""), (State.READY, None, 0, ""), (State.DEAD, None, 1, "no"),
        (State.DONE, None, 0, ""),
    ]  # fmt: skip


@pytest.mark.spec("R3-06", "003-40")
async def test_a_batch_that_fails_is_tried_again_one_by_one(queues: QueueWorld) -> None:
    def answer(ctx: Context, given: list[Mail]) -> None:
        if any(mail.to == "bad" for mail in given):
            raise ValueError("bad address")

    post = Post(queues, answer)
    node = await queues.boot()
    ids = await node.put_many("send", mails("a", "bad", "c"))
    await queues.until(60)
    assert [len(call) for call in post.calls] == [3, 1, 1, 1, 1]
    tasks = [await queues.task(id) for id in ids]
    assert [(task.state, task.attempts) for task in tasks] == [(State.DONE, 1), (State.DEAD, 3), (State.DONE, 1)]


async def test_what_was_tried_once_is_handed_over_alone_even_if_all_are_due_together(queues: QueueWorld) -> None:
    def answer(ctx: Context, given: list[Mail]) -> list[Any] | None:
        return [ctx.retry(10)] * len(given) if len(given) > 1 else None

    post = Post(queues, answer)
    node = await queues.boot()
    await node.put_many("send", mails(*"abc"))
    await queues.until(20)
    assert [len(call) for call in post.calls] == [3, 1, 1, 1]
    assert post.times == [0, 10, 10, 10]


@pytest.mark.spec("R3-06")
async def test_a_bad_payload_is_parked_and_the_rest_of_its_batch_runs(queues: QueueWorld) -> None:
    post = Post(queues)
    await queues.boot()
    rows = [Task(service="send", data=data, due=TEN) for data in ('{"to":"a"}', '{"to":5}', '{"to":"c"}')]
    await queues.image.put(rows, now=TEN)
    await queues.until(1)
    assert [[mail.to for mail in call] for call in post.calls] == [["a", "c"]]
    assert await queues.states() == [State.DONE, State.DEAD, State.DONE]


async def test_a_task_that_is_cancelled_in_a_batch_has_its_result_dropped(queues: QueueWorld) -> None:
    post = Post(queues, takes=10.0)
    node = await queues.boot()
    ids = await node.put_many("send", mails(*"abc"))
    await queues.until(1)
    await node.call("cancel", ids=[ids[1]])
    await queues.until(20)
    assert await queues.states() == [State.DONE, State.CANCELLED, State.DONE]
    assert len(post.calls) == 1


async def test_a_batch_that_nobody_wants_any_more_is_ended(queues: QueueWorld) -> None:
    Post(queues, takes=1000.0)
    node = await queues.boot()
    ids = await node.put_many("send", mails(*"abc"))
    await queues.until(1)
    await node.call("cancel", ids=ids)
    await queues.until(2)
    assert await queues.states() == [State.CANCELLED] * 3


async def test_tasks_with_another_timeout_are_in_another_batch(queues: QueueWorld) -> None:
    post = Post(queues, takes=10.0)
    node = await queues.boot()
    await queues.line(paused=True)
    patient = await node.put_many("send", mails("a", "b"))
    hasty = await node.put_many("send", mails("c", "d"), timeout="1s", max_attempts=1)
    await queues.line(paused=False)
    await queues.until(30)
    assert [[mail.to for mail in call] for call in post.calls] == [["a", "b"], ["c", "d"]]
    assert [(await queues.task(id)).state for id in (*patient, *hasty)] == [State.DONE] * 2 + [State.DEAD] * 2


@pytest.mark.spec("003-02", "003-41", "R3-06")
async def test_data_that_do_not_fit_are_refused_at_the_put(queues: QueueWorld) -> None:
    Post(queues)
    node = await queues.boot()
    with pytest.raises(BadInput, match=r"\$\.to"):
        await node.put("send", {"to": 5})
    with pytest.raises(BadInput, match="to"):
        await node.put_many("send", [{"to": "a"}, {"size": 5}])
    assert await queues.tasks() == []


@pytest.mark.spec("003-41", "003-02")
async def test_msgpack_is_stored_as_bytes_and_read_back(queues: QueueWorld) -> None:
    seen: list[Any] = []

    async def pack(blob: bytes, count: int) -> int:
        seen.append((blob, count))
        return count

    queues.services.append(Service(name="pack", function=pack, codec="msgpack"))
    node = await queues.boot()
    handle = await node.put("pack", {"blob": b"\x00\xff", "count": 2**62})
    assert await handle.result(5) == 2**62
    assert isinstance((await queues.task(handle.id)).data, bytes)
    assert seen == [(b"\x00\xff", 2**62)]
