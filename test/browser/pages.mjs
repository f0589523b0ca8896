// A browser that notes what it complains of.
import { createRequire } from "node:module";
import { readFile } from "node:fs/promises";
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export async function launch(t) {
  const browser = await chromium.launch({
    executablePath: process.env.WEIR_CHROMIUM,
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP weir.test 127.0.0.1"],
  });
  t.after(() => browser.close());
  return browser;
}

// open is a page that fails the test when the browser complains on its console, which is
// also where it tells of violations of the policy, or asks another host.
export async function open(t, browser, at, options = {}) {
  const context = await browser.newContext(options);
  t.after(() => context.close());
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (m) => { if (m.type() === "error" || m.type() === "warning") complaints.push(m.text()); });
  page.on("pageerror", (e) => complaints.push(String(e)));
  page.on("request", (r) => { if (new URL(r.url()).origin !== at) complaints.push("asked " + r.url()); });
  page.complaints = complaints;
  page.at = at;
  return page;
}

export function content(page) {
  assert.deepEqual(page.complaints, [], page.url());
}

export async function login(page, token) {
  await page.goto(page.at + "/");
  await page.getByLabel("Admin token").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { name: "Overview", exact: true }).waitFor();
}

// accessible fails when axe finds something serious.
export async function accessible(page, what) {
  assert.deepEqual(await barriers(page), [], what);
}

// barriers are what axe finds that is serious. The script is evaluated by the test,
// not by the page, whose policy would not let it.
export async function barriers(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const serious = found.violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  return serious.map((v) => v.id + ": " + v.nodes.map((n) => n.target + " " + n.failureSummary).join("; "));
}

// number is what an element with thousands apart says.
export async function number(page, id) {
  return Number((await page.locator("#" + id).innerText()).replace(/[^0-9.]/g, ""));
}

// cut are the texts of which something is hidden, and on a wide window those of tables that scroll sideways.
export async function cut(page) {
  return page.evaluate(() => [...document.querySelectorAll("main *")].filter((e) => {
    const { overflowX, display } = getComputedStyle(e);
    const hides = overflowX === "hidden" && display !== "inline" || e.matches(".scroll") && innerWidth > 1000;
    return hides && e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1 && !e.closest(".uplot, svg");
  }).map((e) => e.textContent.trim().slice(0, 60)));
}

// wide reports whether the page is wider than the window: then it scrolls sideways.
export async function wide(page) {
  return page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
}
