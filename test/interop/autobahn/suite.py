"""Runs the cases of the Autobahn test suite against a WebSocket server, and against the same
server through Weir: no case may end worse than without Weir, twice. Those that measure time (9)
are left out, and of those with compression, which Weir passes on unseen, all but one setting.

    suite.py WEIR FOLDER
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import urllib.request

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

LEFT_OUT = ["9.*"] + [f"{group}.{setting}.*" for group, settings in ((12, 5), (13, 7)) for setting in range(2, settings + 1)]

CONFIG = """
listen: {http: "127.0.0.1:%d"}
admin: {http: "127.0.0.1:%d"}
upstreams: {echo: {targets: ["http://127.0.0.1:%d"]}}
routes: [{name: echo, match: {path: /*}, upstream: echo, websocket: true, limits: [{key: client_ip, concurrent: 1000}]}]
"""


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


async def echo(connection):
    with contextlib.suppress(ConnectionClosed):  # cases close it in the middle
        async for message in connection:
            await connection.send(message)


async def ready(admin):
    for _ in range(600):
        try:
            await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{admin}/readyz", timeout=5)
            return
        except OSError:
            await asyncio.sleep(0.1)
    raise SystemExit("weir is not ready")


def bad(end):
    return any(word in part for part in end for word in ("FAILED", "WRONG", "UNCLEAN"))


async def results(port, folder, cases=()):
    """Returns how each case ended: OK, NON-STRICT, INFORMATIONAL, or FAILED."""
    kosoku = os.path.join(os.path.dirname(sys.executable), "kosoku")
    runner = await asyncio.create_subprocess_exec(
        kosoku, "-p", "4", "-o", folder, *(f"-x{case}" for case in LEFT_OUT), *(f"-i{case}" for case in cases), f"127.0.0.1:{port}", stdout=asyncio.subprocess.DEVNULL)
    await runner.wait()
    with open(os.path.join(folder, "index.json")) as index:
        (server,) = json.load(index).values()
    return {case: (end["behavior"], end["behaviorClose"]) for case, end in server.items()}


async def main(weir, folder):
    upstream, clients, admin = free_ports(3)
    os.makedirs(folder, exist_ok=True)
    config = os.path.join(folder, "weir.yaml")
    with open(config, "w") as file:
        file.write(CONFIG % (clients, admin, upstream))
    async with serve(echo, "127.0.0.1", upstream, max_size=None):
        with open(os.path.join(folder, "weir.log"), "w") as log:
            process = await asyncio.create_subprocess_exec(weir, "run", "-c", config, stderr=log)
        try:
            await ready(admin)
            direct = await results(upstream, os.path.join(folder, "direct"))
            through = await results(clients, os.path.join(folder, "weir"))
            worse = [case for case, end in through.items() if bad(end) and not bad(direct.get(case, ("OK",)))]
            if worse:
                again = await results(clients, os.path.join(folder, "again"), worse)
                worse = [case for case in worse if bad(again[case])]
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()
    failed = sum(bad(end) for end in direct.values())
    print(f"{len(through)} cases, of which the server fails {failed} without Weir; worse through Weir: {worse or 'none'}")
    raise SystemExit(len(worse) > 0 or failed > 10 or len(through) < 250 or through.keys() != direct.keys())


asyncio.run(main(*sys.argv[1:]))
