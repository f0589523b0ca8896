// What it costs a Weir to be looked at: its CPU time for each request under the same load,
// by turns with the dashboard open in a browser and weir top in a terminal, and without.
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { launch, login, open } from "./pages.mjs";
import { run, startRedis, startWeir, tokens } from "./processes.mjs";

const [pairs, seconds, connections] = [Number(process.env.WEIR_PAIRS ?? 6), Number(process.env.WEIR_SECONDS ?? 8), process.env.WEIR_CONNECTIONS ?? "32"];

const ends = [];
const t = { after: (f) => ends.unshift(f) };

const served = `
keys: {phone: {from: "header:X-Phone", normalize: e164, sensitive: true}}
routes:
  - name: sms
    match: {path: /sms}
    respond: {body: ok}
    limits: [{name: phone, key: phone, rate: 1000000/1m}, {name: day, key: phone, rate: 3/24h, mode: shadow}]
  - name: codes
    match: {path: /codes}
    respond: {body: ok}
    limits: [{name: phone, key: phone, rate: 5/1h}]
`;

// ticks is the CPU time of a process so far, user and system, in clock ticks of 10 ms.
async function ticks(pid) {
  const fields = (await readFile(`/proc/${pid}/stat`, "utf8")).split(") ")[1].split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

// load sends requests for some time, and returns how many were answered.
async function load(weir) {
  const { stdout } = await promisify(execFile)(process.env.WEIR_WRK, ["-t1", "-c" + connections, `-d${seconds}s`, "-H", "X-Phone: +8613800138000", weir.http + "/sms"]);
  return Number(/(\d+) requests in/.exec(stdout)[1]);
}

async function cost(weir) {
  const before = await ticks(weir.child.pid);
  const requests = await load(weir);
  return ((await ticks(weir.child.pid)) - before) * 10000 / requests; // µs
}

// watched has a browser and a terminal look at the weir until it is ended.
async function watched(weir, browser) {
  const page = await open(t, browser, weir.admin);
  await login(page, tokens.read);
  await page.locator(".uplot canvas").first().waitFor();
  const top = run(t, "script", ["-qfec", `${process.env.WEIR_BINARY} top --admin ${weir.admin}`, "/dev/null"], { env: { ...process.env, WEIR_ADMIN_TOKEN: tokens.read, TERM: "xterm-256color" } });
  for (let i = 0; !top.said().includes("minute:"); i++) {
    if (i > 100 || top.child.exitCode !== null) throw new Error("weir top shows nothing: " + top.said().slice(0, 500));
    await new Promise((done) => setTimeout(done, 100));
  }
  return async () => {
    top.child.kill("SIGTERM");
    await page.context().close();
  };
}

try {
  const redis = await startRedis(t);
  const settings = `admin: {http: "127.0.0.1:0", tokens: [{name: rob, token: ${tokens.read}}]}\nstore: redis\nredis: {addrs: ["${redis}"], timeout: 2s}\naccess_log: {format: none}\n`;
  const weir = await startWeir(t, settings, served);
  const browser = await launch(t);
  await load(weir); // warm
  const still = async () => {
    const before = await ticks(weir.child.pid);
    await new Promise((done) => setTimeout(done, 5 * seconds * 1000));
    return ((await ticks(weir.child.pid)) - before) * 10 / (5 * seconds); // ms a second
  };
  const alone = await still();
  const unwatch = await watched(weir, browser);
  console.log(`without requests: alone ${alone.toFixed(1)} ms a second, looked at ${(await still()).toFixed(1)} ms`);
  await unwatch();
  const ratios = [];
  for (let i = 0; i < pairs; i++) {
    const one = {};
    for (const looked of i % 2 ? [true, false] : [false, true]) {
      const end = looked ? await watched(weir, browser) : async () => {};
      one[looked] = await cost(weir);
      await end();
    }
    ratios.push(one.true / one.false);
    console.log(`alone ${one.false.toFixed(2)} µs a request, looked at ${one.true.toFixed(2)} µs: ${(100 * ratios.at(-1) - 100).toFixed(1)} %`);
  }
  ratios.sort((a, b) => a - b);
  const middle = (ratios[(pairs - 1) >> 1] + ratios[pairs >> 1]) / 2;
  console.log(`median of ${pairs} pairs: ${(100 * middle - 100).toFixed(1)} %`);
} finally {
  for (const end of ends) await end();
}
