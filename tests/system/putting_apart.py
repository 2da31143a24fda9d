"""Services of a process of their own that put tasks."""

from raptor import Context, service


@service
def leaf(number: int) -> int:
    return number


@service(isolate=True)
def branch(number: int, ctx: Context) -> int:
    placed = ctx.put(leaf, {"number": number})
    return int(placed.id)


@service(isolate=True)
async def async_branch(number: int, ctx: Context) -> int:
    placed = await ctx.put("leaf", {"number": number}, in_="1h")
    return int(placed.id)
