// What an operator sees and does on the pages of a running Weir.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { accessible, barriers, content, cut, launch, login, number, open, wide } from "./pages.mjs";
import { eventually, routes, search, send, startCluster, startWeir, tokens, track } from "./processes.mjs";

const phone = "+8613800138000";

// busy is a cluster in which something has happened, pushed twice, first with a list in a file of its own, and once in
// vain.
async function busy(t) {
  const cluster = await startCluster(t);
  const [a, b] = cluster.nodes;
  const push = (files) => cluster.ask("/api/v1/push", { method: "POST", body: JSON.stringify({ author: "ann", dry_run: false, bundle: { main: "weir.yaml", files } }) });
  const list = "lists: {testers: {key: phone, file: testers.txt, action: bypass}}\n";
  await push({ "weir.yaml": "version: 1\n" + list + routes, "testers.txt": "+8613800130000\n" });
  await push({ "weir.yaml": "version: 1\n" + routes.replace("rate: 2/1h", "rate: 3/1h") });
  await assert.rejects(push({ "weir.yaml": list + routes.replaceAll("rate: ", "rat: ") }));
  for (let i = 0; i < 6; i++) await send(i % 2 ? a : b, phone);
  for (let i = 0; i < 4; i++) await send(a, "+86138001380" + (10 + i));
  for (let i = 0; i < 4; i++) await send(i % 2 ? a : b, "+86138001390" + (10 + i), "/code");
  for (const last of ["10", "11"]) await send(b, "+86138001390" + last, "/verify");
  await search(a, 30);
  await search(b, 20);
  await track(b);
  await eventually("statistics have it", async () => {
    const s = await cluster.ask("/api/v1/statistics?minutes=15");
    const refused = s.minutes.flatMap((m) => m.routes).flatMap((r) => r.limits ?? []).reduce((n, l) => n + l.refused, 0);
    return refused >= 3;
  });
  return cluster;
}

async function lookUp(page, value = phone) {
  await page.goto(page.at + "/dashboard/keys");
  await page.getByLabel("Key", { exact: true }).fill("phone");
  await page.getByLabel("Value", { exact: true }).fill(value);
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByRole("heading", { name: "How it stands" }).waitFor();
}

async function explain(page) {
  await page.goto(page.at + "/dashboard/explain");
  await page.getByLabel("Method").fill("POST");
  await page.getByLabel("URL").fill("/sms");
  await page.getByLabel("Header, a field a line").fill("X-Phone: " + phone);
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByText("Response by Weir: 429").waitFor();
}

// unfold shows decisions, of which the first is unfolded.
async function unfold(page) {
  await page.goto(page.at + "/dashboard/decisions?route=sms");
  await page.locator(".decisions summary").first().click();
  await page.getByRole("link", { name: "Explain this request" }).first().waitFor();
}

// ask is the question before a ban.
async function ask(page) {
  await lookUp(page);
  await change(page, "ban", "a flood");
  await page.getByRole("button", { name: "Ban it" }).waitFor();
  await page.waitForLoadState();
}

// change presses the button of an action on the key that is shown.
async function change(page, action, reason) {
  await page.locator("#reason-" + action).fill(reason);
  await page.locator("#do-" + action).click();
}

// check asks all nodes whether they could serve a stricter configuration.
async function check(page) {
  await page.goto(page.at + "/dashboard/config");
  await page.getByLabel("The file for all nodes (YAML)").fill("version: 1\n" + routes.replace("rate: 2/1h", "rate: 1/1h"));
  await page.getByRole("button", { name: "Check on all nodes" }).click();
  await page.locator("#push").waitFor();
  await page.waitForLoadState();
}

// places are all pages, and what must be on each.
const places = [
  ["overview", async (p) => { await p.goto(p.at + "/"); await p.locator(".uplot canvas").first().waitFor(); }, "All nodes, last 15m"],
  ["routes", (p) => p.goto(p.at + "/dashboard/routes"), "stricter"],
  ["keys", lookUp, "3 of 3 used, 0 left"],
  ["explain", explain, "Refused by"],
  ["nodes", (p) => p.goto(p.at + "/dashboard/nodes"), "Both nodes serve the same configuration"],
  ["config", (p) => p.goto(p.at + "/dashboard/config?diff=3"), "rate: 3/1h}"],
  ["config-first", (p) => p.goto(p.at + "/dashboard/config?diff=2"), "+++ b/testers.txt"],
  ["decisions", unfold, "phone=+86138****8000"],
  ["ask", ask, "Ban phone=+86138****8000 for 1h?"],
  ["push", check, "All nodes could serve it. It would change:"],
  ["top", (p) => p.goto(p.at + "/dashboard/top"), "Keys that were refused most"],
  ["conversion", (p) => p.goto(p.at + "/dashboard/conversion"), "over half of CN"],
  ["upstreams", (p) => p.goto(p.at + "/dashboard/upstreams"), "parcels has no healthy target"],
  ["audit", (p) => p.goto(p.at + "/dashboard/audit"), "not done: weir.yaml"],
];

// untranslated are the times on a page beside which that of the reader is missing or wrong, once its script had the time to write it.
async function untranslated(page, timeZone) {
  const find = (timeZone) => [...document.querySelectorAll("time[datetime]")].filter((at) => {
    const [day, time] = new Date(at.dateTime).toLocaleString("sv-SE", { timeZone }).split(" ");
    return !at.textContent.endsWith(` (${day === at.dateTime.slice(0, 10) ? "" : day.slice(5) + " "}${time} here)`);
  }).map((at) => at.outerHTML);
  const end = Date.now() + 10_000;
  let found;
  do found = await page.evaluate(find, timeZone); while (found.length > 0 && Date.now() < end);
  return found;
}

test("every page shows what has happened, in both themes and from 375 to 1440 px, also far from UTC", async (t) => {
  const { nodes } = await busy(t);
  const browser = await launch(t);
  const faults = [];
  const translated = new Set();
  for (const [colorScheme, timezoneId] of [["light", "UTC"], ["dark", "Asia/Kolkata"]]) {
    for (const width of [375, 1440]) {
      const page = await open(t, browser, nodes[0].admin, { colorScheme, timezoneId, viewport: { width, height: 900 } });
      await login(page, tokens.write);
      for (const [name, visit, text] of places) {
        await visit(page);
        await page.getByText(text).first().waitFor();
        if (await wide(page)) faults.push(`${name} is wider than ${width} px`);
        for (const text of await cut(page)) faults.push(`${name}, ${width} px, is cut: ${text}`);
        const [menu, row] = await page.evaluate(() => [document.querySelector("header").offsetHeight, document.querySelector(".decisions li + li")?.offsetHeight ?? 0]);
        if (menu > 100 || row > 60) faults.push(`${name}, ${width} px: the menu is ${menu} px high, and a request ${row}`);
        if (timezoneId !== "UTC") {
          for (const time of await untranslated(page, timezoneId)) faults.push(`${name}, in ${timezoneId}: ${time}`);
          if (await page.locator("time .here").count() > 0) translated.add(name);
        }
        await page.screenshot({ path: join(process.env.WEIR_SCREENSHOTS, `${name}-${colorScheme}-${width}.png`), fullPage: true });
        for (const barrier of await barriers(page)) faults.push(`${name}, ${colorScheme}, ${width} px: ${barrier}`);
      }
      content(page);
    }
  }
  assert.deepEqual(faults, []);
  for (const name of ["overview", "routes", "keys", "nodes", "config", "decisions", "top", "upstreams", "audit"]) assert.ok(translated.has(name), `${name} has no time`);
});

test("a refused phone is unblocked on the page and passes on every node", async (t) => {
  const { nodes } = await busy(t);
  assert.deepEqual([await send(nodes[0], phone), await send(nodes[1], phone)], [429, 429]);
  const browser = await launch(t);
  const page = await open(t, browser, nodes[1].admin);
  await login(page, tokens.write);

  // By the keyboard alone: from the top of the page to the field, and on.
  await page.goto(page.at + "/dashboard/keys");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to content");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  await page.keyboard.type("phone");
  await page.keyboard.press("Tab");
  await page.keyboard.type(phone);
  await page.keyboard.press("Enter");
  await page.getByText("3 of 3 used, 0 left").waitFor();
  assert.ok(!page.url().includes("138"), "the key is in the URL");

  assert.match(await page.locator("#verdict").innerText(), /^Refused now by sms\.phone 3\/1h until ([0-9-]+ )?[0-9:]+ UTC \([0-9hms]+\)\.$/);
  assert.equal(await page.locator("#do-unban").count(), 0, "what is not banned can be unbanned");

  // A reset asks first; the answer is given by the keyboard.
  await change(page, "reset", "asked by phone");
  await page.getByRole("heading", { name: "Reset phone=+86138****8000?" }).waitFor();
  await page.locator("#sure:focus").waitFor(); // once the page is there
  assert.deepEqual([await send(nodes[0], phone)], [429], "it was reset before the answer");
  await page.keyboard.press("Enter");
  await page.getByText("Reset: what was counted is forgotten").waitFor();
  await page.getByText("0 of 3 used, 3 left").waitFor();
  assert.deepEqual([await send(nodes[0], phone), await send(nodes[1], phone)], [200, 200]);

  // Reloading repeats nothing, also after a step back.
  await page.reload();
  await page.getByText("2 of 3 used, 1 left").waitFor();
  assert.equal(await page.getByText("Reset: what was counted is forgotten").count(), 0);
  await page.goBack();
  await page.getByRole("heading", { name: "How it stands" }).waitFor();
  await page.goForward();
  await page.getByText("2 of 3 used, 1 left").waitFor();

  await change(page, "ban", "a flood");
  await page.getByRole("button", { name: "Ban it" }).click();
  await page.getByText("Banned for 1h").waitFor();
  assert.deepEqual([await send(nodes[0], phone), await send(nodes[1], phone)], [429, 429]);
  await change(page, "unban", "it was the wrong one");
  await page.getByText("Unbanned: what was counted stays").waitFor();
  await page.locator("#permits").fill("1");
  await change(page, "grant", "for the trouble");
  await page.getByText("Granted 1 permit,").waitFor();
  assert.equal(await send(nodes[0], phone), 200);

  await page.goto(page.at + "/dashboard/audit");
  await page.getByText("asked by phone").waitFor();
  await accessible(page, "audit");
  content(page);
});

test("each node tells of requests, keys and upstreams of the other", async (t) => {
  const { nodes: [a, b] } = await busy(t);
  const id = await track(b);
  const browser = await launch(t);
  const page = await open(t, browser, a.admin);
  await login(page, tokens.read);
  await page.goto(page.at + "/dashboard/decisions");
  await page.getByLabel("Request id").fill(id);
  await page.getByRole("button", { name: "Show" }).click();
  await page.locator(".decisions li").first().waitFor();
  assert.equal(await page.locator(".decisions li").count(), 1);
  await page.locator(".decisions summary").click();
  assert.match(await page.locator(".decisions li").innerText(), new RegExp(id));
  await page.goto(page.at + "/dashboard/top?limit=all");
  assert.match(await page.locator("tbody tr").first().innerText(), /search\.all\s+0\s+50/);
  await page.goto(page.at + "/dashboard/upstreams");
  await page.getByText(/^ejected .+ for another [0-9ms]+/).waitFor();
  content(page);

  b.child.kill("SIGSTOP"); // it counts as alive for ten seconds more
  await page.goto(page.at + "/dashboard/decisions");
  await page.getByText("Some nodes did not reply").waitFor();
  b.child.kill("SIGCONT");
});

test("live numbers change by themselves, and a node that is gone is told of", async (t) => {
  const { nodes } = await busy(t);
  const browser = await launch(t);
  const page = await open(t, browser, nodes[0].admin);
  await login(page, tokens.write);
  const [all, total] = [await number(page, "n-requests"), await number(page, "n-total")];
  await search(nodes[0], 25);
  await eventually("the node's own number grows", async () => (await number(page, "n-total")) >= total + 25);
  await eventually("the number of all nodes grows", async () => (await number(page, "n-requests")) >= all + 25);
  // What the node tells of itself comes by the stream of events, also between two looks.
  await page.route("**/?minutes=*", (route) => route.fulfill({ status: 204 }));
  const told = await number(page, "n-total");
  await search(nodes[0], 25);
  await eventually("the node's own number grows by its events", async () => (await number(page, "n-total")) >= told + 25);
  await page.unroute("**/?minutes=*");
  content(page);
  nodes[0].stop();
  await page.getByText("This Weir does not answer").waitFor();
});

test("the table by the minute adds up", async (t) => {
  const { nodes } = await busy(t);
  const browser = await launch(t);
  const page = await open(t, browser, nodes[0].admin);
  const one = { at: [1769846400], sums: [{ Requests: 1234, Allowed: 1000, Refused: 200, Rejected: 30, Unavailable: 4, Shadow: 7 }] };
  await page.route("**/dashboard/series*", (route) => route.fulfill({ json: one }));
  await login(page, tokens.read);
  await page.getByText("The same as a table").click();
  const cells = page.locator("#numbers td");
  await cells.first().waitFor();
  const heads = await page.locator("#numbers thead th").allInnerTexts();
  assert.deepEqual(heads.slice(1), ["Requests", "Allowed", "Refused", "Rejected", "Not decided", "Shadow"]);
  assert.deepEqual(await cells.allInnerTexts(), ["1\u202f234", "1\u202f000", "200", "30", "4", "7"]);
  content(page);
});

test("two operators at one key: who comes second is told of the first", async (t) => {
  const { nodes } = await busy(t);
  const browser = await launch(t);
  const [ann, other] = [await open(t, browser, nodes[0].admin), await open(t, browser, nodes[1].admin)];
  for (const page of [ann, other]) {
    await login(page, tokens.write);
    await lookUp(page);
  }
  await change(ann, "ban", "a flood");
  await ann.getByRole("button", { name: "Ban it" }).click();
  await ann.getByText("Banned for 1h").waitFor();
  await change(other, "reset", "asked by phone");
  await other.getByRole("button", { name: "Reset it" }).click();
  await other.getByText(/ann banned it for 1h, [0-9ms]+ ago \(a flood\), after you looked/).waitFor();
  await other.getByText(/Last change: ann banned it for 1h/).waitFor();
  assert.equal(await send(nodes[0], phone), 429);
  await accessible(other, "conflict");
  await change(other, "reset", "asked by phone");
  await other.getByRole("button", { name: "Reset it" }).click();
  await other.getByText("Reset: what was counted is forgotten").waitFor();
  assert.equal(await send(nodes[0], phone), 200);
  content(ann);
});

test("after a login comes the page that was asked for, also from a page whose session has ended", async (t) => {
  const { nodes } = await busy(t);
  const browser = await launch(t);
  const page = await open(t, browser, nodes[0].admin);
  const enter = async (at) => {
    await page.getByLabel("Admin token").fill(tokens.write);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.waitForURL(page.at + at);
  };
  await page.goto(page.at + "/dashboard/decisions?outcome=refused&route=sms");
  await enter("/dashboard/decisions?outcome=refused&route=sms");
  await page.goto(page.at + "/dashboard/routes?sort=name");
  await page.context().clearCookies();
  await enter("/dashboard/routes?sort=name"); // its live part has asked
});

test("a configuration is checked, simulated and pushed on the page, also on a phone", async (t) => {
  const { nodes, ask: api } = await startCluster(t, 2, "reload: {source: redis}\naccess_log: {file: access.log}\n");
  for (let i = 0; i < 3; i++) await send(nodes[0], phone);
  const browser = await launch(t);
  const page = await open(t, browser, nodes[0].admin, { viewport: { width: 390, height: 800 } });
  await login(page, tokens.write);
  await check(page);
  await page.getByText("sms.phone: 2/1h → 1/1h").waitFor();
  await page.getByRole("button", { name: "Simulate with this node's log" }).click();
  await page.getByRole("heading", { name: "Side by side" }).waitFor();
  await check(page);
  await page.locator("#push").click();
  await page.getByText("Done: all nodes serve generation 2").waitFor();
  await page.reload();
  const { history } = await api("/api/v1/history");
  assert.deepEqual(history.map((e) => e.author), ["ann"]);
  assert.ok(!(await wide(page)), "the page is wider than a phone");
  const box = await page.getByRole("link", { name: "Show diff" }).first().boundingBox();
  assert.ok(box.x >= 0 && box.x + box.width <= 390, "the diff is out of reach");
  content(page);
});

test("a rollback on the page is served by all nodes", async (t) => {
  const { nodes, ask } = await busy(t);
  const browser = await launch(t);
  const page = await open(t, browser, nodes[0].admin);
  await login(page, tokens.write);
  await page.goto(page.at + "/dashboard/config");
  await page.getByText("Roll back to 2").click();
  await page.getByRole("button", { name: "Serve 2 on all nodes" }).click();
  await page.getByText("Done: all nodes serve generation 4").waitFor();
  assert.ok((await ask("/api/v1/nodes")).nodes.every((n) => n.generation === 4));
  const { history } = await ask("/api/v1/history");
  assert.deepEqual([history[0].author, history[0].from], ["ann", 2]);
  content(page);
});

test("who may look changes nothing, and the key on a decision leads to its standing", async (t) => {
  const { nodes } = await busy(t);
  const browser = await launch(t);
  const page = await open(t, browser, nodes[0].admin);
  await login(page, tokens.read);
  await page.goto(page.at + "/dashboard/decisions?outcome=refused");
  await page.locator(".decisions summary").first().click();
  await page.getByRole("button", { name: "phone=+86138****8000" }).first().click();
  await page.getByText("3 of 3 used, 0 left").waitFor();
  await page.getByText("Your token is read-only").waitFor();
  assert.equal(await page.locator("#do-reset").count(), 0);
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("Admin token").waitFor();
  await accessible(page, "login");
  content(page);
});

test("without Redis each page says so once, and in words", async (t) => {
  const { nodes, redis } = await busy(t);
  const browser = await launch(t);
  const page = await open(t, browser, nodes[0].admin, { viewport: { width: 390, height: 800 } });
  await login(page, tokens.write);
  redis.stop();
  await page.getByText("Redis is unreachable.").waitFor();
  const faults = [];
  for (const name of ["", "routes", "keys", "top", "conversion", "decisions", "explain", "upstreams", "nodes", "config", "audit"]) {
    await page.goto(page.at + (name && "/dashboard/" + name));
    if (name === "keys") await lookUp(page);
    if (name === "explain") {
      await page.getByLabel("URL").fill("/search");
      await page.getByRole("button", { name: "Explain" }).click();
      await page.getByText("without Redis: this node’s share").waitFor();
    }
    const lines = (await page.locator("body").innerText()).split("\n");
    const said = lines.filter((line) => line.startsWith("Redis is unreachable."));
    if (said.length !== 1) faults.push(`${name} says it not once: ${said.join("; ")}`);
    faults.push(...lines.filter((line) => /decide by|context deadline|circuit breaker|limiter store/.test(line)).map((line) => `${name} speaks of the program: ${line}`));
    if (await wide(page)) faults.push(`${name} is wider than a phone`);
    for (const barrier of await barriers(page)) faults.push(`${name}: ${barrier}`);
    await page.screenshot({ path: join(process.env.WEIR_SCREENSHOTS, `away-${name}.png`), fullPage: true });
  }
  assert.deepEqual(faults, []);
});

// Where a page has no HTTPS and is not on this machine, browsers tell less of where a
// form comes from.
test("forms are taken over plain HTTP under another name", async (t) => {
  const { nodes } = await busy(t);
  const browser = await launch(t);
  const page = await open(t, browser, nodes[0].admin.replace("127.0.0.1", "weir.test"));
  await login(page, tokens.write);
  await lookUp(page);
  await page.getByText("3 of 3 used, 0 left").waitFor();
});

test("without a token the pages are open to this machine, and a foreign page sends nothing", async (t) => {
  const weir = await startWeir(t, 'admin: {http: "127.0.0.1:0"}\n');
  const browser = await launch(t);
  const page = await open(t, browser, weir.admin);
  await page.goto(page.at + "/");
  await page.getByText("No requests in this time").waitFor();
  await accessible(page, "empty overview");
  for (let i = 0; i < 3; i++) await send(weir, phone);
  assert.equal(await send(weir, phone), 429);
  await lookUp(page);
  await change(page, "reset", "a test");
  await page.getByRole("button", { name: "Reset it" }).click();
  await page.getByText("Reset: what was counted is forgotten").waitFor();
  assert.equal(await send(weir, phone), 200);
  for (const empty of ["nodes", "config", "routes", "audit", "top", "upstreams", "decisions"]) {
    await page.goto(page.at + "/dashboard/" + empty);
    await accessible(page, empty);
  }
  content(page);

  const foreign = await open(t, browser, "null");
  const answered = foreign.waitForResponse((r) => r.url().includes("/dashboard/keys/change"));
  await foreign.setContent(`<form method="post" action="${weir.admin}/dashboard/keys/change"><input name="action" value="reset"><button>Go</button></form>`);
  await foreign.getByRole("button").click();
  assert.equal((await answered).status(), 403);
});
