"""Asks a Weir over HTTP/2 with httpx; see http2_clients_test.go for what each answer must be."""
import asyncio, json, ssl, sys

import httpx

base, ca, size = sys.argv[1], sys.argv[2], int(sys.argv[3])


async def main():
    said = {}
    context = ssl.create_default_context(cafile=ca)
    async with httpx.AsyncClient(http2=True, http1=False, verify=context, timeout=120, base_url=base, trust_env=False) as c:
        many = await asyncio.gather(*(c.get("/free") for _ in range(100)))
        said["many"] = f"{sum(r.status_code == 200 for r in many)} {many[0].http_version}"
        r = await c.post("/free", content=bytes(size))
        said["upload"] = f"{r.status_code} {r.json()['length']}"
        # httpx reads no answer before it has sent the body, and so waits forever for a larger window.
        r = await c.post("/limited", content=bytes(60_000))
        said["early"] = f"{r.status_code} {r.json()['status']}"
        r = await c.get("/big")
        said["download"] = f"{r.status_code} {len(r.content)}"
    print(json.dumps(said))


asyncio.run(main())
