"""Target: the wheel, beside a list that is sorted."""

from __future__ import annotations

from raptor.wheel import Wheel
from tests.fuzz.draw import Draw
from tests.fuzz.target import Target, must

SIZES = ((256, 64, 64, 64), (36, 6, 24), (1,), (2, 2), (4, 1, 3), (1, 1, 1))
TICKS = (0.001, 0.1, 1.0, 3.7)
STARTS = (0.0, 1.0, 1_763_433_600.125, -5.0, 1e9)


def wheel(data: bytes) -> None:
    draw = Draw(data)
    now = draw.pick(STARTS)
    tested: Wheel[int] = Wheel(now, tick_s=draw.pick(TICKS), sizes=draw.pick(SIZES))
    held: dict[int, tuple[float, int]] = {}
    for added in range(60):
        if not draw.left:
            break
        match draw.below(6):
            case 0 | 1 | 2:
                key, due = draw.below(8), _when(draw, now)
                try:
                    tested.add(key, due)
                except (ValueError, OverflowError):
                    must(due != due or abs(due) > 1e300, f"{due} was refused")
                else:
                    held[key] = due, added
            case 3:
                key = draw.below(8)
                must(tested.cancel(key) == (held.pop(key, None) is not None), f"cancelling {key}")
            case _:
                when = _when(draw, now)
                now = min(max(when, -1e12), 1e12) if when == when else now
                due_now = sorted((due, order, key) for key, (due, order) in held.items() if due <= now)
                given = tested.advance(now)
                must(given == [key for _, _, key in due_now], f"{given} at {now}, not {due_now}")
                for key in given:
                    del held[key]
        earliest = tested.next()
        must(len(tested) == len(held) and (earliest is None) == (not held), "another number of keys")
        must(earliest is None or earliest <= min(held.values())[0], "it would wake too late")


def _when(draw: Draw, now: float) -> float:
    match draw.below(6):
        case 0:
            return now
        case 1:
            return now + draw.below(256) / 256
        case 2:
            return now + draw.below(65536)
        case 3:
            return now - draw.below(256) / 16
        case 4:
            return now + draw.below(2**40) / 1000
        case _:
            return draw.number()


TARGETS = (
    Target("wheel", wheel, (bytes(range(64)), b"\x02\x00\x00" + b"\x00\x01\x01\x40\x05\x02\x01\x00" * 8, b"\x01" * 60)),
)
