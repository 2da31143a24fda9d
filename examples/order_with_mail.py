"""A web application whose order and mail are one transaction: both are there, or neither is.

    python examples/order_with_mail.py postgresql://user@host/database [--port 8080]      (or RAPTOR_STORE)

    curl -d '{"item": "book", "to": "ann@example.com"}' http://127.0.0.1:8080/orders

POST /orders stores an order and puts the task that mails about it, in one transaction of psycopg; a node in the same
program runs the mails. Standard library and psycopg. Ctrl-C stops it.
"""

import argparse
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg

from raptor import put_in, running, service
from raptor.errors import BadInput
from raptor.state.postgres.address import read

ORDERS = "CREATE TABLE IF NOT EXISTS example_orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text)"


@service(queue="mail")
def send_email(order: int, to: str) -> None:
    print(f"mail to {to}: order {order} is on its way", flush=True)


def take_order(url: str, schema: str, asked: dict[str, Any]) -> int:
    """An order without an address, or of nothing, leaves no trace."""
    with psycopg.connect(url) as connection, connection.transaction():
        row = connection.execute(
            "INSERT INTO example_orders (item) VALUES (%s) RETURNING id", (asked.get("item"),)
        ).fetchone()
        assert row is not None
        put_in(connection, send_email, {"order": row[0], "to": asked.get("to")}, schema=schema)
        return int(row[0])


class Orders(BaseHTTPRequestHandler):
    url = schema = ""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            self._answer(201, {"order": take_order(self.url, self.schema, json.loads(body))})
        except (BadInput, ValueError) as error:
            self._answer(400, {"error": str(error)})

    def do_GET(self) -> None:
        with psycopg.connect(self.url) as connection:
            rows = connection.execute("SELECT id, item FROM example_orders ORDER BY id").fetchall()
        self._answer(200, {"orders": rows})

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def main(store: str, port: int) -> None:
    Orders.url, Orders.schema = read(store).url, read(store).schema
    with running(services=[send_email], store=store, listen=False):
        with psycopg.connect(Orders.url) as connection:
            connection.execute(ORDERS.encode())
        with ThreadingHTTPServer(("127.0.0.1", port), Orders) as server:
            print(f"http://127.0.0.1:{server.server_port}/orders", flush=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print("stopped", flush=True)


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("store", nargs="?", default=os.environ.get("RAPTOR_STORE"))
    words.add_argument("--port", type=int, default=8080)
    given = words.parse_args()
    if given.store is None:
        words.error("name the store: postgresql://user@host/database")
    main(given.store, given.port)
