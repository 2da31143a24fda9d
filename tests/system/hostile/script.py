"""A program whose services are defined in the very file that is run."""

from __future__ import annotations

from raptor.clock import SystemClock
from raptor.runners import RUNNERS, Context, check
from raptor.runners.output import RunLog
from raptor.service import Service


def work() -> str:
    return f"ran as {__name__}"


async def main() -> None:
    service = Service(name="work", function=work, isolate=True)
    check(service)
    context = Context(run_id="script", service="work", planned=0.0, key="k")
    result = await RUNNERS["python"](clock).run(service, context, RunLog())
    print(result.outcome, result.info)


if __name__ == "__main__":
    clock = SystemClock()
    clock.run(main)
