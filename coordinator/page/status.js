"use strict";
// Draws status.json, every three seconds while somebody looks.  Everything goes in as text: names and
// sentences come from strangers.
const POLL_MS = 3000;
const SHOWN = 200; // rows of a table; the rest is in status.json
const byId = (id) => document.getElementById(id);

function element(name, text, style) {
  const e = document.createElement(name);
  if (text !== undefined && text !== null) e.textContent = String(text);
  if (style) e.className = style;
  return e;
}

function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) { n /= 1000; i++; }
  return `${n < 10 && i > 0 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

function ago(now, then) {
  if (!then) return "never";
  const s = Math.max(0, Math.round((Date.parse(now) - Date.parse(then)) / 1000));
  if (s < 120) return `${s} s ago`;
  if (s < 7200) return `${Math.round(s / 60)} min ago`;
  return s < 172800 ? `${Math.round(s / 3600)} h ago` : `${Math.round(s / 86400)} d ago`;
}

const loss = (x) => (x === null ? "–" : x > 1e6 ? "unusable" : x.toFixed(4));

function facts(s) {
  const list = [
    ["round", `${s.round} (0 to ${s.rounds - 1})`],
    ["nodes ready", `${s.ready} of ${s.node_count}`],
    ["accepted", `${s.accepted} of ${s.selected}`],
    ["refused", s.refused],
    ["held-out loss", loss(s.loss)],
    ["received", bytes(s.bytes_in)],
    ["sent", bytes(s.bytes_out)],
    ["connections", s.connections],
    ["last round over", ago(s.time, s.round_over)],
    ["running since", ago(s.time, s.started)],
    ["memory", bytes(s.resident_bytes)],
  ];
  byId("facts").replaceChildren(...list.map(([name, value]) => {
    const box = element("div");
    box.append(element("dt", name), element("dd", value));
    return box;
  }));
}

function table(id, heads, rows, total) {
  const head = element("tr");
  head.append(...heads.map((h) => element("th", h)));
  const body = rows.slice(0, SHOWN).map((cells) => {
    const row = element("tr");
    row.append(...cells.map((c) => (Array.isArray(c) ? element("td", c[0], c[1]) : element("td", c))));
    return row;
  });
  const note = (text) => {
    const row = element("tr"), cell = element("td", text, "none");
    cell.colSpan = heads.length;
    row.append(cell);
    body.push(row);
  };
  if (!rows.length) note("none yet");
  if (total > Math.min(rows.length, SHOWN)) note(`and ${total - Math.min(rows.length, SHOWN)} more, in status.json`);
  byId(id).replaceChildren(head, ...body);
}

function drawing(name, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) e.setAttribute(key, attributes[key]);
  if (text !== undefined) e.textContent = text;
  return e;
}

// A round that was held back is a red dot, and no part of the line.
function curve(points) {
  points = points.filter((p) => p[1] < 1e6);
  if (!points.length) return;
  const W = 640, H = 220, L = 54, R = 12, T = 12, B = 24;
  const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  const x0 = Math.min(...xs), x1 = Math.max(...xs, x0 + 1);
  let y0 = Math.min(...ys), y1 = Math.max(...ys);
  if (y1 - y0 < 1e-6) { y0 -= 0.05; y1 += 0.05; }
  const x = (v) => (L + ((v - x0) / (x1 - x0)) * (W - L - R)).toFixed(1);
  const y = (v) => (T + ((y1 - v) / (y1 - y0)) * (H - T - B)).toFixed(1);
  const svg = drawing("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "held-out loss by round" });
  for (const v of [y0, (y0 + y1) / 2, y1]) {
    svg.append(drawing("line", { class: "grid", x1: L, x2: W - R, y1: y(v), y2: y(v) }));
    svg.append(drawing("text", { x: L - 6, y: Number(y(v)) + 4, "text-anchor": "end" }, v.toFixed(3)));
  }
  svg.append(drawing("text", { x: L, y: H - 6 }, `round ${x0}`));
  svg.append(drawing("text", { x: W - R, y: H - 6, "text-anchor": "end" }, x1));
  const line = points.filter((p) => p[2]).map((p) => `${x(p[0])},${y(p[1])}`).join(" ");
  svg.append(drawing("polyline", { class: "curve", points: line }));
  if (points.length <= 100)
    for (const p of points) svg.append(drawing("circle", { class: p[2] ? "dot" : "held", r: 3, cx: x(p[0]), cy: y(p[1]) }));
  byId("curve").replaceChildren(svg);
}

function draw(s) {
  document.title = `${s.state} · ${s.run}`;
  byId("run").textContent = s.run;
  const also = [s.working && "working", s.paused && "paused", s.draining && "draining"].filter(Boolean);
  byId("state").textContent = also.length ? `${s.state} (${also.join(", ")})` : s.state;
  byId("state").className = "";
  byId("sick").replaceChildren(...s.sick.map((reason) => element("li", reason)));
  facts(s);
  curve(s.curve);
  const good = (v, yes) => [v, v === yes ? "good" : "bad"];
  table("rounds", ["round", "verdict", "loss", "accepted", "refused", "missing", "tokens"],
    s.history.slice().reverse().map((r) => [r.round, good(r.verdict, "published"), loss(r.loss),
      `${r.accepted} of ${r.selected}`, r.refused, r.missing, r.tokens]), s.history.length);
  table("nodes", ["node", "is", "accepted", "refused", "received", "sent"],
    s.nodes.map((n) => [[n.name, "long"], n.declined ? [`${n.is} (${n.declined})`, "long"] : n.is, n.accepted, n.refused, bytes(n.up), bytes(n.down)]), s.node_count);
  table("verdicts", ["when", "round", "who", "verdict", "why"],
    s.verdicts.map((v) => [ago(s.time, v.time), v.round, [v.node ?? v.peer ?? "unknown", "long"],
      good(v.verdict, "accepted"), [v.sentence, "long"]]), s.verdicts.length);
  byId("asked").textContent = `as of ${s.time}, run ${s.run_id}, audit log ${s.audit_entries} entries, head ${s.audit_head}`;
}

async function ask() {
  try {
    const answer = await fetch("status.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    draw(await answer.json());
  } catch (e) {
    byId("state").textContent = `no answer from the coordinator (${e.message}); what is below is old`;
    byId("state").className = "stale";
  }
}

async function poll() {
  if (!document.hidden) await ask();
  setTimeout(poll, POLL_MS);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
poll();
