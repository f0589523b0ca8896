// A night of an operator who has nothing but the pages: three Weirs, one Redis, and mixed
// traffic all the while.
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { barriers, content, launch, login, open, wide } from "./pages.mjs";
import { eventually, folder, send, startCluster, tokens } from "./processes.mjs";

const often = "+8613800138000";

// The traffic goes on for so long before the operator looks.
const seconds = Number(process.env.WEIR_NIGHT_SECONDS ?? 5);

// night sends codes to phones and searches, through all nodes, until it is ended: a few to
// most phones, and to one so many that most are refused. log is what a load balancer would
// have written, refused the ids of refused requests.
function night(t, nodes) {
  const log = [];
  const refused = [];
  let on = true;
  const drive = async (node, i) => {
    for (let n = 0; on; n++) {
      const search = n % 3 === 1;
      const phone = search ? "" : n % 3 === 0 ? often : "+86138001" + String(10000 * (i + 1) + Math.floor(n / 2)).padStart(5, "0");
      const time = new Date().toISOString();
      try {
        const answer = search ? await fetch(node.http + "/search?q=" + n) : await fetch(node.http + "/sms", { method: "POST", headers: { "X-Phone": phone } });
        await answer.arrayBuffer();
        log.push(JSON.stringify({ time, request_method: search ? "GET" : "POST", request_uri: search ? "/search?q=" + n : "/sms", remote_addr: "127.0.0.1", http_x_phone: phone || "-", status: answer.status }));
        if (answer.status === 429) refused.push(answer.headers.get("X-Request-Id"));
      } catch (e) {
        if (on) throw e; // the nodes end with the test
      }
      await new Promise((done) => setTimeout(done, 50));
    }
  };
  const all = Promise.all(nodes.map(drive));
  all.catch(() => {}); // end tells of it
  t.after(() => { on = false; });
  return { log, refused, end: async () => { on = false; await all; } };
}

// cells are the texts of a row's cells, by the names of their columns.
async function cells(row) {
  return row.evaluate((tr) => {
    const heads = [...tr.closest("table").querySelectorAll("thead th")].map((h) => h.textContent);
    return Object.fromEntries([...tr.children].map((c, i) => [heads[i], c.textContent.trim()]));
  });
}

const digits = (text) => Number(text.replace(/[^0-9-]/g, ""));

test("a night by the pages alone: what refuses, whom, why, until when, unblocked, who leads, what a stricter rule would do", async (t) => {
  const dir = await folder(t);
  const { nodes } = await startCluster(t, 3, "access_log: {file: access.log}\n");
  const traffic = night(t, nodes);
  await eventually("some are refused", () => traffic.refused.length > 5);
  await new Promise((done) => setTimeout(done, seconds * 1000));
  const browser = await launch(t);
  const page = await open(t, browser, nodes[1].admin);
  await login(page, tokens.write);

  // Which limit refuses most.
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Routes & limits" }).click();
  const limits = async () => {
    const rows = await Promise.all((await page.locator("tbody tr:not(.group)").all()).map(cells));
    return rows.filter((r) => r.Refused !== undefined).sort((a, b) => digits(b.Refused) - digits(a.Refused));
  };
  const most = await eventually("the page tells of refusals", async () => {
    const [first] = await limits();
    return digits(first.Refused) > 5 && first;
  });
  assert.match(most["Route, limit"], /^phone/);

  // Which key.
  await page.getByRole("link", { name: "Top keys" }).click();
  const top = page.getByRole("region", { name: "Keys" }).locator("tbody tr").first();
  const key = await cells(top);
  assert.match(JSON.stringify(key), /86138\*\*\*\*8000/);
  assert.ok(digits(key.Refused) > 5, JSON.stringify(key));
  assert.ok(!(await page.content()).includes(often), "the phone stands on the page");

  // Why this very request was refused, and when it would pass.
  const id = traffic.refused.at(-1);
  await page.getByRole("link", { name: "Decisions" }).click();
  await page.getByLabel("Request id").fill(id);
  await page.getByRole("button", { name: "Show" }).click();
  const row = page.locator(".decisions li").first();
  assert.match(await row.innerText(), /429\s+POST \/sms\s+refused by sms\.phone 2\/1h, passes ([0-9-]+ )?[0-9:]+ UTC \([0-9hms]+\)/);
  await row.locator("summary").click();
  await row.getByText(id).waitFor();
  await row.getByRole("button", { name: "phone=+86138****8000" }).first().click();
  await page.getByText("2 of 2 used, 0 left").waitFor();
  await page.getByText(/(One more|All back) at ([0-9-]+ )?[0-9:]+ UTC \([0-9hms]+\)/).first().waitFor();

  // Unblocked, it passes on every node. The traffic would use what it is given up.
  await traffic.end();
  const reset = async () => {
    await page.locator("#reason-reset").fill("she called");
    await page.locator("#do-reset").click();
    await page.getByRole("button", { name: "Reset it" }).click();
    await page.getByText("Reset: what was counted is forgotten").waitFor();
  };
  await reset();
  const passed = [];
  for (const node of nodes) {
    passed.push(await send(node, often));
    await reset();
    await page.getByText("0 of 2 used, 2 left").first().waitFor();
  }
  assert.deepEqual(passed, [200, 200, 200]);

  // Who leads, and whether configurations differ.
  await page.getByRole("link", { name: "Nodes" }).click();
  await page.getByText("All 3 nodes serve the same configuration").waitFor();
  await eventually("one leads", async () => (await page.locator("tbody .tag.good", { hasText: "leader" }).count()) === 1);
  const file = await readFile(nodes[2].path, "utf8");
  await writeFile(nodes[2].path, file.replace("rate: 2/1h", "rate: 3/1h"));
  await page.getByText("of 3 nodes serve a different configuration").waitFor({ timeout: 60000 });
  assert.ok((await page.getByText("drift").count()) > 0);

  // What yesterday's log would have met under a stricter rule.
  await simulates(page, traffic.log, dir);
  content(page);
});

// simulates replays a log on the page, also beside a stricter rule, in both themes and
// widths.
async function simulates(page, log, dir) {
  const sent = new Map();
  for (const line of log) {
    const phone = JSON.parse(line).http_x_phone;
    if (phone !== "-") sent.set(phone, (sent.get(phone) ?? 0) + 1);
  }
  const beyond = (n) => [...sent.values()].reduce((sum, s) => sum + Math.max(s - n, 0), 0);
  const path = join(dir, "yesterday.log");
  await writeFile(path, log.join("\n") + "\n");
  await page.getByRole("link", { name: "Simulate" }).click();
  await page.getByText("Choose an access log").waitFor();
  await page.getByText("Compare with another configuration").click();
  await page.getByRole("link", { name: "Copy the current configuration" }).click();
  const yaml = page.getByLabel("Another configuration to compare with");
  const served = await yaml.inputValue();
  assert.match(served, /2\/1h/);
  await yaml.fill(served.replace("2/1h", "1/1h"));
  await page.getByLabel("Access log", { exact: true }).setInputFiles(path);
  await page.getByRole("button", { name: "Simulate" }).click();
  await page.getByRole("heading", { name: "requests replayed" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), "h-said", "the result has no focus");
  const both = page.getByRole("region", { name: "Side by side" }).locator("tbody tr").filter({ hasText: /^phone/ });
  const said = await cells(both);
  assert.deepEqual([digits(said.Refused), digits(said["Refused, other"]), digits(said.Difference)], [beyond(2), beyond(1), beyond(1) - beyond(2)]);
  assert.ok((await page.getByText("86138****8000").count()) >= 2, "the key that is refused most is not told of both");
  const faults = [];
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [375, 1440]) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      if (await wide(page)) faults.push(`simulate is wider than ${width} px`);
      await page.screenshot({ path: join(process.env.WEIR_SCREENSHOTS, `simulate-${colorScheme}-${width}.png`), fullPage: true });
      for (const barrier of await barriers(page)) faults.push(`simulate, ${colorScheme}, ${width} px: ${barrier}`);
    }
  }
  assert.deepEqual(faults, []);

  // What is wrong is said beside the form, which keeps what was written; the node's own
  // log tells of phones by their hashes.
  await yaml.fill("routes: [{match: {path: /a}, upstrem: echo}]");
  await page.getByRole("button", { name: "Simulate" }).click();
  await page.getByText(/other\.yaml:1:\d+: .*upstrem/).waitFor();
  assert.ok(await page.locator("#away").isHidden(), "it is said that the weir does not answer");
  await page.screenshot({ path: join(process.env.WEIR_SCREENSHOTS, "simulate-fault.png"), fullPage: true });
  await yaml.fill("");
  await page.getByLabel(/of this node/).check();
  await page.getByRole("button", { name: "Simulate" }).click();
  const own = page.getByRole("region", { name: "As it is served" }).locator("tbody tr").filter({ hasText: /^phone\s*by phone/ });
  await own.waitFor();
  assert.ok(digits((await cells(own)).Refused) > 0, await own.innerText());
}
