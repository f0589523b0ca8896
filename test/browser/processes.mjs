// Starts what the pages are looked at with: a Redis, Weirs, and requests through them.
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const tokens = { write: "writes-and-looks-0123456789", read: "looks-and-no-more-0123456789" };

// A Dead is why waiting is of no use.
class Dead extends Error {}

// eventually waits until ask returns something true.
export async function eventually(what, ask, within = 20000) {
  const end = Date.now() + within;
  let last;
  while (Date.now() < end) {
    try {
      const said = await ask();
      if (said) return said;
    } catch (e) {
      if (e instanceof Dead) throw e;
      last = e;
    }
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error(what + ": not in " + within + " ms" + (last ? ": " + last.message : ""));
}

async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

// A process that ends with the test, and whose words are told when it does not start.
export function run(t, program, args, options = {}) {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
  const said = [];
  child.stdout.on("data", (text) => said.push(text));
  child.stderr.on("data", (text) => said.push(text));
  const ended = new Promise((done) => child.on("exit", done));
  t.after(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  return { child, said: () => Buffer.concat(said).toString() };
}

export async function folder(t) {
  const path = await mkdtemp(join(tmpdir(), "weir-browser-"));
  t.after(() => rm(path, { recursive: true, force: true }));
  return path;
}

export async function startRedis(t) {
  const port = await freePort();
  const redis = run(t, process.env.WEIR_REDIS_SERVER, ["--port", String(port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"], { cwd: await folder(t) });
  await eventually("redis takes connections", () => {
    if (redis.child.exitCode !== null) throw new Dead(redis.said());
    return redis.said().includes("Ready to accept connections");
  });
  return { at: "127.0.0.1:" + port, stop: () => redis.child.kill("SIGKILL") };
}

// routes is a configuration with a limit that is enforced, one in shadow mode, one of the codes
// that are not used, and an upstream of which nothing is there.
export const routes = `
keys:
  phone: {from: "header:X-Phone", normalize: e164, sensitive: true}
  country: {of: phone, part: country}
  range: {of: phone, part: prefix, drop_last: 4}
  ip: client_ip
upstreams:
  parcels: {targets: ["http://127.0.0.1:1"], health: {after: 1, rest: 10m}}
routes:
  - name: sms
    match: {path: /sms, methods: [POST]}
    upstream: echo
    limits:
      - {name: phone, key: phone, rate: 2/1h}
      - {name: stricter, key: phone, rate: 1/1h, mode: shadow}
  - name: search
    match: {path: /search}
    upstream: echo
    limits: [{name: all, key: ip, rate: 1000/1m}]
  - name: code
    match: {path: /code, methods: [POST]}
    upstream: echo
    limits:
      - {name: unused, key: ip, rates: [20/1h, 40/1d], return_on: {route: verify, key: phone}, conversion: 35%}
      - {name: unused-country, key: country, rate: 40/1d, return_on: {route: verify, key: phone}, conversion: 35%}
      - {name: unused-range, key: range, rate: 15/1d, return_on: {route: verify, key: phone}, conversion: 35%}
  - name: verify
    match: {path: /verify, methods: [POST]}
    upstream: echo
    limits: [{name: guesses, key: phone, rate: 50/1h}]
  - name: parcels
    match: {path: /parcels}
    upstream: parcels
`;

// startWeir starts one with the settings of more, and returns where it is.
export async function startWeir(t, more, served = routes) {
  const cwd = await folder(t);
  const path = join(cwd, "weir.yaml");
  await writeFile(path, `version: 1\nlisten: {http: "127.0.0.1:0"}\n${more}${served}`);
  const weir = run(t, process.env.WEIR_BINARY, ["run", "-c", path], { cwd });
  const line = await eventually("weir serves", () => {
    if (weir.child.exitCode !== null) throw new Dead(weir.said());
    return weir.said().split("\n").find((l) => l.includes('"message":"serving"') || l.includes('"msg":"serving"'));
  });
  const { admin, http } = JSON.parse(line);
  return { admin: "http://" + admin, http: "http://" + http, path, child: weir.child, stop: () => weir.child.kill("SIGKILL"), said: weir.said };
}

// startCluster starts so many Weirs that share a Redis. By default they serve what is
// pushed.
export async function startCluster(t, count = 2, more = "reload: {source: redis}\n") {
  const redis = await startRedis(t);
  const settings = `admin:
  http: "127.0.0.1:0"
  hosts: [weir.test]
  tokens: [{name: ann, token: ${tokens.write}, role: write}, {name: rob, token: ${tokens.read}, role: read}]
store: redis
redis: {addrs: ["${redis.at}"], timeout: 2s}
`;
  const nodes = [];
  for (let i = 0; i < count; i++) nodes.push(await startWeir(t, settings + more));
  const ask = async (path, init = {}) => {
    const answer = await fetch(nodes[0].admin + path, { ...init, headers: { Authorization: "Bearer " + tokens.write } });
    if (!answer.ok) throw new Error(path + ": " + (await answer.text()));
    return answer.json();
  };
  await eventually("all nodes are heard", async () => (await ask("/api/v1/nodes")).nodes.length === count);
  return { nodes, ask, redis };
}

// send is the status of one request for a phone.
export async function send(weir, phone, path = "/sms") {
  const answer = await fetch(weir.http + path, { method: "POST", headers: { "X-Phone": phone } });
  await answer.arrayBuffer();
  return answer.status;
}

// track is the id of one request for what does not answer.
export async function track(weir) {
  const answer = await fetch(weir.http + "/parcels");
  await answer.arrayBuffer();
  return answer.headers.get("X-Request-Id");
}

export async function search(weir, n) {
  for (let i = 0; i < n; i++) await (await fetch(weir.http + "/search?q=" + i)).arrayBuffer();
}
