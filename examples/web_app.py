"""A scheduler inside a small web application: asyncio and the standard library, nothing else.

    python examples/web_app.py [--port 8080]

GET / answers with what the services have counted, GET /status with the scheduler's own account. Ctrl-C stops both.
"""

import argparse
import asyncio
import json
import signal
import tempfile
from typing import Any

from raptor import Node, service

counted = 0


@service(every="200ms")
async def count():
    global counted
    counted += 1


async def answer(node: Node, path: str) -> tuple[str, dict[str, Any]]:
    if path == "/":
        return "200 OK", {"counted": counted}
    if path == "/status":
        return "200 OK", await node.status()
    return "404 Not Found", {"error": f"nothing at {path}"}


async def serve(node: Node, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        words = (await reader.readline()).decode("latin-1").split()
        while (await reader.readline()).strip():
            pass  # headers
        status, body = await answer(node, words[1] if len(words) > 1 else "/")
        data = json.dumps(body).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        await writer.drain()
    finally:
        writer.close()


async def main(port: int, home: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Node(home, services=[count]) as node:
        await node.schedule("web", ["count"])
        await node.start("web")
        server = await asyncio.start_server(lambda r, w: serve(node, r, w), "127.0.0.1", port)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", flush=True)
        async with server:
            await stop.wait()
    print("stopped", flush=True)


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--port", type=int, default=8080)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(words.parse_args().port, f"{folder}/state"))
