"use strict";

// Text from elsewhere is set as text, never as markup.
const COLOURS = 6; // at most this many queries are drawn: the eye follows no more, and the table has all
const MAX_SAMPLES = 720;
const PLOT = { width: 460, height: 170, left: 56, right: 8, top: 8, bottom: 22 };
const PLOTS = [
  ["under_way", "Queued, running and retrying, by query", count],
  ["stale_for", "Oldest stale value of those sampled, by query", time],
  ["lead", "Lead time (median δ), by query", time],
  ["totals", "Queued in the broker, and dead keys", count],
  ["feed", "Change feed: oldest change, and time from a commit to its invalidation", time],
];
const OWN = ["totals", "feed"]; // drawn by names of their own, not by query
const token = document.querySelector('meta[name="refresher-token"]').content;
const RETRYING = "retrying …";
const samples = [];
const results = new Map(); // of retries, by letter
let drawnQueries = [];

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function at(id) { return document.getElementById(id); }

function count(value) {
  return value === null || value === undefined ? "–" : Number(value).toLocaleString("en", { maximumFractionDigits: 1 });
}

function clock(at) { return new Date(at * 1000).toLocaleTimeString("sv"); }

function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0";
  if (seconds < 0.01) return `${(seconds * 1000).toPrecision(2)} ms`;
  if (seconds < 1) return `${seconds.toFixed(2)} s`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function table(id, heads, rows, empty) {
  const body = rows.length ? rows : [[[empty, "text"]]];
  const head = element("tr");
  for (const [text, kind] of rows.length ? heads : []) {
    const cell = element("th", text, kind);
    cell.scope = "col";
    head.append(cell);
  }
  const lines = body.map((cells) => {
    const line = element("tr");
    for (const [place, [content, kind]] of cells.entries()) {
      const cell = element("td", content instanceof Node ? undefined : content, kind);
      if (rows.length) cell.dataset.head = heads[place][0]; // shown before it where the table is narrow
      if (content instanceof Node) cell.append(content);
      line.append(cell);
    }
    return line;
  });
  at(id).replaceChildren(...(rows.length ? [head] : []), ...lines);
}

function showProblems(problems) {
  const shown = [...at("problems").children].map((one) => one.textContent);
  if (shown.join("\n") === problems.join("\n")) return; // not read out again at each poll
  at("problems").hidden = problems.length === 0;
  at("problems").replaceChildren(...problems.map((one) => element("li", one)));
}

function showFigures(status) {
  const { keys, queues, workers, dead } = status;
  const seen = keys && !keys.problem;
  const entries = seen ? Object.values(keys.queries).reduce((sum, row) => sum + row.keys, 0) : null;
  const figures = [
    [seen && keys.is_sample ? "entries sampled" : "entries", count(entries)],
    ["background refreshes", count(queues && queues.refresh)],
    ["blocking refreshes", count(queues && queues.miss)],
    ["workers", workers ? count(workers.length) : "–"],
    ["dead keys", dead ? count(sum(dead.open)) : "–"],
    ["in quarantine", dead ? count(sum(dead.quarantined)) : "–"],
  ];
  at("figures").replaceChildren(...figures.map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    return pair;
  }));
}

function sum(counts) { return Object.values(counts).reduce((total, one) => total + one, 0); }

function showQueries(keys, dead) {
  const n = "number";
  const heads = [["query"], ["keys", n], ["stale", n], ["stale for", n], ["lead", n], ["queued", n], ["oldest", n],
    ["running", n], ["retrying", n], ["cooling", n], ["lapsed", n], ["dead", n]];
  const rows = Object.values(keys ? keys.queries : {}).sort((a, b) => (a.query < b.query ? -1 : 1)).map((row) => [
    [row.query, "name"], [count(row.keys), n], [row.headers ? `${row.stale} of ${row.headers}` : "–", n],
    [time(row.oldest_stale), n], [time(row.lead), n], [count(row.queued), n], [time(row.longest_wait), n],
    [count(row.running), n], [count(row.retrying), n], [count(row.cooling), n], [count(row.lapsed), n],
    [dead ? count(dead.open[row.query] || 0) : "–", n],
  ]);
  table("queries", heads, rows, keys && !keys.problem ? "no keys in the cache" : "unknown");
  at("sample").hidden = !(keys && keys.is_sample);
  if (keys && keys.is_sample) {
    const of = keys.keys_of_server === null ? "" : ` of ${count(keys.keys_of_server)} keys`;
    at("sample").textContent = `A sample${of}: counts are of the sample, not scaled up.`;
  }
}

function showRest(status) {
  const keys = status.keys || { runs: [] };
  table("runs", [["query"], ["key"], ["for", "number"], ["by"]],
    keys.runs.map((run) => [[run.query, "name"], [element("code", run.key)], [time(run.lasts), "number"], [run.by, "text"]]),
    status.keys && !status.keys.problem ? "nothing" : "unknown");
  table("workers", [["name"], ["pool"], ["processes", "number"], ["refreshes taken, by query", "text"], ["up", "number"]],
    (status.workers || []).map((one) => [[one.name, "name"], [one.pool], [count(one.processes), "number"],
      [Object.entries(one.taken).map(([query, taken]) => `${query} ${count(taken)}`).join(", "), "text"],
      [time(one.uptime), "number"]]),
    status.workers ? "none replies: nothing is refreshed" : "unknown");
  const { feed } = status;
  table("feed", [["consumer"], ["waiting", "number"], ["oldest change", "number"], ["invalidated after (p50)", "number"], ["p99", "number"], ["watched", "text"]],
    feed ? [[[feed.consumer || `nobody, for ${time(feed.silent_for)}`, "name"], [count(feed.waiting), "number"], [time(feed.oldest), "number"],
      [time(feed.p50), "number"], [time(feed.p99), "number"], [feed.watched.join(", "), "text"]]] : [],
    status.problems.feed ? "unknown" : "off");
}

function showLetters(letters, problem) {
  const pressed = at("letters").querySelector("button:active");
  if (pressed) return; // a redraw would lose the click
  const focused = at("letters").contains(document.activeElement) ? document.activeElement.dataset.letter : undefined;
  const n = "number";
  const heads = [["action"], ["query"], ["key"], ["failed"], ["because", "text"], ["attempts", n], ["in a row", n], ["when"],
    ["now"]];
  table("letters", heads, letters.map((one) => [
    [button(one)], [one.query, "name"], [element("code", one.key)], [one.kind], [one.message === null ? "(not kept)" : one.message, "text"],
    [count(one.attempts), n], [one.failures ? count(one.failures) : "–", n],
    [new Date(one.at * 1000).toLocaleString("sv")], [one.left > 0 ? `${one.state}, ${time(one.left)} left` : one.state],
  ]), problem || "none");
  if (focused) at("letters").querySelector(`[data-letter="${CSS.escape(focused)}"]`)?.focus();
}

function button(letter) {
  const cell = element("span");
  const state = results.get(letter.id);
  const made = element("button", state === RETRYING ? RETRYING : "Retry");
  made.disabled = state === RETRYING || !letter.params;
  made.title = letter.params ? `Refresh ${letter.query} ${letter.key} now` : "its params were not kept: only a read can refresh it";
  made.setAttribute("aria-label", `${made.textContent} ${letter.query} ${letter.key}`);
  made.dataset.letter = letter.id;
  made.addEventListener("click", () => retry(letter.id));
  cell.append(made);
  if (state && state !== RETRYING) cell.append(element("span", ` ${state}`));
  return cell;
}

async function retry(id) {
  results.set(id, RETRYING);
  await poll();
  try {
    const answer = await fetch("retry", {
      method: "POST", body: JSON.stringify({ ids: [id] }),
      headers: { "Content-Type": "application/json", "X-Refresher-Token": token },
    });
    const record = await answer.json();
    const [result] = record.results || [];
    results.set(id, result ? [result.result, result.why].filter(Boolean).join(": ") : record.error);
  } catch (error) {
    results.set(id, "request failed");
  }
  await poll();
}

function showPlots() {
  const names = busiestFirst();
  drawnQueries = names.slice(0, COLOURS).sort();
  at("legend").replaceChildren(...drawnQueries.map((name, number) => element("li", name, `s${number}`)));
  if (names.length > COLOURS) at("legend").append(element("li", `the ${COLOURS} busiest of ${names.length} queries`, "rest"));
  const drawnPlots = PLOTS.filter(([field]) => field !== "feed" || namesOf(field).length);
  at("plots").replaceChildren(...drawnPlots.map(([field, title, shown]) => plot(field, title, shown)));
}

function namesOf(field) {
  return OWN.includes(field) ? Object.keys(samples.length ? samples[samples.length - 1][field] : {}) : drawnQueries;
}

function busiestFirst() {
  const most = new Map(); // by query: the most of each plot's field
  const fields = ["under_way", "stale_for", "lead"];
  for (const one of samples) {
    fields.forEach((field, place) => {
      for (const [name, value] of Object.entries(one[field])) {
        if (!most.has(name)) most.set(name, [0, 0, 0]);
        most.get(name)[place] = Math.max(most.get(name)[place], value);
      }
    });
  }
  const order = ([a, x], [b, y]) => y[0] - x[0] || y[1] - x[1] || y[2] - x[2] || (a < b ? -1 : 1);
  return [...most].sort(order).map(([name]) => name);
}

function plot(field, title, shown) {
  const made = element("figure");
  made.append(element("figcaption", title));
  const names = namesOf(field);
  const values = samples.flatMap((one) => names.map((name) => one[field][name])).filter((value) => value > 0);
  const top = nice(Math.max(["lead", "feed"].includes(field) ? 0.1 : 1, ...values));
  const svg = drawn("svg", { viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, role: "img", "aria-label": title });
  for (const part of [0, 0.5, 1]) {
    const y = PLOT.height - PLOT.bottom - part * (PLOT.height - PLOT.bottom - PLOT.top);
    svg.append(drawn("line", { x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: y, y2: y }));
    svg.append(drawn("text", { x: PLOT.left - 6, y: y + 4, "text-anchor": "end" }, shown(top * part)));
  }
  const [first, last] = span();
  for (const [x, when, anchor] of [[PLOT.left, first, "start"], [PLOT.width - PLOT.right, last, "end"]]) {
    svg.append(drawn("text", { x, y: PLOT.height - 6, "text-anchor": anchor }, clock(when)));
  }
  names.forEach((name, number) => svg.append(path(field, name, number, top, first, last)));
  made.append(svg);
  if (OWN.includes(field)) {
    const legend = element("ul", undefined, "legend");
    legend.append(...names.map((name, number) => element("li", name, `s${number % COLOURS}`)));
    made.append(legend);
  }
  return made;
}

function span() {
  const last = samples.length ? samples[samples.length - 1].at : Date.now() / 1000;
  return [Math.min(samples.length ? samples[0].at : last, last - 60), last];
}

function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

function path(field, name, number, top, first, last) {
  let d = "", isDrawing = false;
  for (const one of samples) {
    const value = one[field][name];
    if (value === null || value === undefined) { isDrawing = false; continue; }
    const x = PLOT.left + ((one.at - first) / (last - first)) * (PLOT.width - PLOT.left - PLOT.right);
    const y = PLOT.height - PLOT.bottom - Math.min(1, value / top) * (PLOT.height - PLOT.bottom - PLOT.top);
    d += `${isDrawing ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    if (!isDrawing) d += `h0.1`; // a single sample is visible, too
    isDrawing = true;
  }
  return drawn("path", { d: d || "M0 0", class: `s${number % COLOURS}` });
}

async function poll() {
  const since = samples.length ? samples[samples.length - 1].at : 0;
  let answer;
  try {
    answer = await (await fetch(`status.json?since=${since}`)).json();
  } catch (error) {
    showProblems(["The page's server does not answer: this page is outdated."]);
    return 5;
  }
  const status = answer.status;
  if (status) {
    const fresh = answer.samples.filter((one) => one.at > (samples.length ? samples[samples.length - 1].at : 0));
    samples.push(...fresh);
    samples.splice(0, Math.max(0, samples.length - MAX_SAMPLES));
    const why = status.keys && status.keys.problem ? [`The cache can't be scanned: ${status.keys.problem}`] : [];
    if (status.feed && !status.feed.consumer) why.push("Nobody consumes the change feed: refresher feed status");
    showProblems([...new Set([...Object.values(status.problems), ...why])]);
    showFigures(status);
    showQueries(status.keys, status.dead);
    showRest(status);
    showPlots();
    at("when").textContent = `${clock(status.at)}, every ${answer.every} s`;
  }
  showLetters(answer.letters, answer.letters_problem);
  return status ? answer.every : 0.5;
}

(async function goOn() {
  const seconds = await poll();
  setTimeout(goOn, 1000 * seconds);
})();
