// What the pages do beyond being shown: say when this Weir is away, speak a state that
// has changed, and draw the charts. Without it the pages still work.
"use strict";
(() => {
  const away = document.getElementById("away");
  const spoken = document.getElementById("spoken");

  const lost = () => {
    if (!away.hidden) return;
    const now = new Date();
    away.textContent = "This Weir does not answer. The numbers are those of " + now.toISOString().slice(11, 19) + " UTC" + here(now, 19) + ".";
    away.hidden = false;
  };
  const back = () => { away.hidden = true; };
  for (const event of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) document.body.addEventListener(event, lost);
  document.body.addEventListener("htmx:afterOnLoad", back);

  // On a narrow window the menu is one row, which begins with the page that is shown.
  document.querySelector("header [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

  // Numbers that change every two seconds must not be read out each time: the state is,
  // and only when it is another.
  let state = null;
  const speak = () => {
    const now = document.querySelector("[data-state]")?.dataset.state;
    if (now === undefined || now === state) return;
    if (state !== null) spoken.textContent = now;
    state = now;
  };
  speak();
  document.body.addEventListener("htmx:afterSwap", speak);

  // Beside the time of the cluster, which logs have too, that of the reader, with its month and day if they are others;
  // nothing where they are the same. end cuts the seconds off.
  const here = (at, end) => {
    const offset = at.getTimezoneOffset();
    if (offset === 0) return "";
    const local = new Date(at - offset * 60e3).toISOString();
    const day = local.slice(0, 10) === at.toISOString().slice(0, 10) ? "" : local.slice(5, 10) + " ";
    return " (" + day + local.slice(11, end) + " here)";
  };
  const local = () => {
    for (const at of document.querySelectorAll("time[datetime]")) {
      const text = here(new Date(at.dateTime), 19);
      if (text === "" || at.querySelector(".here")) continue;
      const beside = document.createElement("span");
      beside.className = "here";
      beside.textContent = text.trim();
      at.append(" ", beside);
    }
  };
  local();
  for (const event of ["htmx:afterSwap", "htmx:oobAfterSwap"]) document.body.addEventListener(event, local);

  // What this node counts it tells every second: its numbers are live between two looks at
  // all nodes. A page that is not looked at listens to nothing: browsers allow few
  // connections to a host.
  const live = document.getElementById("live");
  const place = document.getElementById("main").dataset.events;
  const thousands = (n) => String(n).replace(/\B(?=(\d{3})+(\.|$))/g, "\u202f");
  if (live && place) {
    const most = 60;
    let rates = [];
    let source = null;
    const show = (id, text) => {
      const at = document.getElementById(id);
      if (at) at.textContent = text;
    };
    // Until there is a minute of events, the number is the one that came with the page.
    const rate = () => { if (rates.length === most) show("n-rate", thousands((rates.reduce((a, b) => a + b) / most).toFixed(1))); };
    const counted = (e) => {
      const n = JSON.parse(e.data).counts?.filter((c) => !c.limit).reduce((sum, c) => sum + c.n, 0) ?? 0;
      rates = [...rates, n].slice(-most);
      rate();
      const total = document.getElementById("n-total");
      if (total) total.textContent = thousands(Number(total.textContent.replace(/\D/g, "")) + n);
    };
    const listen = () => {
      source?.close();
      source = null;
      rates = [];
      if (document.hidden) return;
      source = new EventSource(place);
      source.addEventListener("open", back);
      source.addEventListener("error", lost);
      source.addEventListener("statistics", counted);
      for (const type of ["reload", "key"]) source.addEventListener(type, () => htmx.trigger(live, "told"));
    };
    listen();
    document.addEventListener("visibilitychange", listen);
    document.body.addEventListener("htmx:afterSwap", rate);
    addEventListener("pagehide", () => source?.close());
  }

  // A log is sent without leaving the page, so that the file stays chosen.
  const form = document.getElementById("simulate");
  if (form) {
    const sent = document.getElementById("sent");
    const file = document.getElementById("log");
    const most = Number(form.dataset.most);
    const own = [...form.querySelectorAll("[name=own_log]")];
    const check = () => {
      const long = file.files.length > 0 && file.files[0].size > most && !own[0]?.checked;
      file.setCustomValidity(long ? "The log is longer than " + most / 2 ** 20 + " MiB: send it gzipped, or a part of it." : "");
      file.reportValidity();
    };
    for (const option of own) option.addEventListener("change", check);
    file.addEventListener("change", () => {
      if (own[1]) own[1].checked = true;
      check();
    });
    form.addEventListener("htmx:beforeRequest", () => { sent.removeAttribute("value"); spoken.textContent = "Replaying"; });
    form.addEventListener("htmx:xhr:progress", (e) => {
      if (e.detail.lengthComputable && e.detail.loaded < e.detail.total) sent.value = e.detail.loaded / e.detail.total;
      else sent.removeAttribute("value");
    });
    document.body.addEventListener("htmx:afterSwap", (e) => {
      if (e.detail.requestConfig?.elt !== form) return;
      const head = document.getElementById("h-said");
      spoken.textContent = head ? head.textContent : "";
      head?.focus();
    });
  }

  const charts = document.querySelector("[data-series]");
  if (!charts) return;

  const names = { requests: "Requests", refused: "Refused", shadow: "Shadow", unavailable: "Not decided" };
  // Without a pointer over it, the legend of a chart has the last minute that is over. A minute by the time of the cluster, and by that of the reader.
  const clock = (at) => {
    const there = new Date(at * 1e3);
    return there.toISOString().slice(11, 16) + " UTC" + here(there, 16);
  };
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const places = [...charts.querySelectorAll("[data-lines]")];
  let plots = [];
  let points = null;

  const drawn = (lines) => [points.at, ...lines.map((name) => points[name])];

  const draw = () => {
    for (const p of plots) p.destroy();
    plots = places.map((place) => {
      place.replaceChildren();
      const lines = place.dataset.lines.split(" ");
      const axis = { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } };
      return new uPlot({
        width: place.clientWidth,
        height: 220,
        tzDate: (ts) => uPlot.tzDate(new Date(ts * 1e3), "Etc/UTC"),
        fmtDate: (template) => uPlot.fmtDate(template),
        cursor: { drag: { x: false, y: false } },
        scales: { y: { range: (u, min, max) => [0, Math.max(max * 1.1, 5)] } },
        axes: [{ ...axis, values: [[3600, "{HH}:{mm}"], [60, "{HH}:{mm}"]] }, { ...axis, size: 60, values: (u, all) => all.map(thousands) }],
        series: [
          { label: "Minute", value: (u, at, s, i) => clock(points.at[i ?? points.at.length - 1]) },
          ...lines.map((name) => ({ label: names[name], value: (u, n, s, i) => thousands(points[name][i ?? points.at.length - 1]), stroke: color("--c-" + name), width: 2, points: { show: false } })),
        ],
      }, drawn(lines), place);
    });
    describe();
  };

  // The canvas says nothing to who cannot see it: a label tells the sums, the table all.
  const describe = () => {
    for (const place of places) {
      const lines = place.dataset.lines.split(" ");
      const sums = lines.map((name) => names[name] + ": " + thousands(points[name].reduce((a, b) => a + b, 0)));
      place.setAttribute("role", "img");
      place.setAttribute("aria-label", "Chart of the last " + points.at.length + " minutes. " + sums.join(", "));
    }
    const body = document.querySelector("#numbers tbody");
    body.replaceChildren(...points.at.map((at, i) => {
      const row = document.createElement("tr");
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = clock(at);
      row.append(head);
      for (const n of ["requests", "allowed", "refused", "rejected", "unavailable", "shadow"].map((name) => points[name][i])) {
        const cell = document.createElement("td");
        cell.className = "num";
        cell.textContent = thousands(n);
        row.append(cell);
      }
      return row;
    }).reverse());
  };

  const say = (text) => {
    for (const place of places) {
      const p = document.createElement("p");
      p.className = "empty";
      p.textContent = text;
      place.replaceChildren(p);
    }
    plots = [];
  };

  const load = async () => {
    try {
      const answer = await fetch(charts.dataset.series, { headers: { "HX-Request": "true" } });
      if (!answer.ok) throw new Error(answer.status);
      const first = points === null || plots.length === 0;
      const said = await answer.json();
      points = { at: said.at, old: said.old };
      for (const name of ["Requests", "Allowed", "Refused", "Rejected", "Unavailable", "Shadow"]) points[name.toLowerCase()] = said.sums.map((s) => s[name]);
      charts.classList.toggle("old", Boolean(points.old));
      document.getElementById("charts-known").textContent = points.old ? "Last known at " + clock(points.old) + "." : "";
      if (first) draw();
      else {
        plots.forEach((p, i) => p.setData(drawn(places[i].dataset.lines.split(" "))));
        describe();
      }
    } catch {
      if (points === null) say("Not known since this node was started.");
    }
  };
  load();
  setInterval(() => { if (!document.hidden) load(); }, 5000);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (points) draw(); });
  new ResizeObserver(() => plots.forEach((p, i) => {
    if (places[i].clientWidth !== p.width) p.setSize({ width: places[i].clientWidth, height: 220 });
  })).observe(charts);
})();
