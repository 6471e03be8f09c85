"use strict";

const REFRESH_MS = 1000;
const SHOWN_EPOCHS = 20;
const SHOWN_DECISIONS = 10;

function element(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "title"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  // Texts of other people go in as texts, never as markup.
  node.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return node;
}

function table(headings, rows) {
  const cell = (tag) => (value) =>
    element(tag, typeof value === "number" ? { class: "n" } : {}, typeof value === "number" ? round(value) : value);
  return element("table", {},
    element("tr", {}, ...headings.map(cell("th"))),
    ...rows.map((row) => element("tr", {}, ...row.map(cell("td")))));
}

function round(value) {
  return Number.isInteger(value) ? value : value.toFixed(value < 10 ? 2 : 1);
}

// A line over time; values that are null leave a gap.
function path(points, x, y, className) {
  let drawn = "", pen = "M";
  for (const [at, value] of points) {
    if (value === null) { pen = "M"; continue; }
    drawn += `${pen}${x(at).toFixed(1)},${y(value).toFixed(1)}`;
    pen = "L";
  }
  return element("path", { class: className, d: drawn });
}

function chart(title, samples, lines) {
  const width = 360, height = 120, left = 34, bottom = 16, top = 8;
  const first = samples[0].at_s, last = Math.max(samples.at(-1).at_s, first + 1);
  const values = lines.flatMap(([of]) => samples.map(of)).filter((value) => value !== null);
  const most = Math.max(...values, 0) || 1;
  const x = (at) => left + ((at - first) / (last - first)) * (width - left - 4);
  const y = (value) => top + (1 - value / most) * (height - top - bottom);
  return element("div", {},
    element("div", { class: "soft" }, title),
    element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
      element("line", { class: "axis", x1: left, x2: width, y1: y(0), y2: y(0) }),
      element("text", { x: 0, y: y(most) + 4 }, round(most)),
      element("text", { x: 0, y: y(0) + 4 }, "0"),
      element("text", { x: left, y: height - 2 }, `${Math.round(last - first)} s ago`),
      element("text", { x: width - 24, y: height - 2 }, "now"),
      ...lines.map(([of, className]) => path(samples.map((each) => [each.at_s, of(each)]), x, y, className))));
}

function jobView(job) {
  const wanted = job.wanted_workers || "all";
  const parts = [
    element("h2", {}, `${job.job_name}: ${job.state}, ${job.mode}`),
    element("div", {}, `${job.workers} workers, ${job.target_workers} granted, ${wanted} wanted by ${job.scaling_policy}; ` +
      `${round(job.batch_time_ms)} ms a batch, waits ${Math.round(100 * job.wait_fraction)} % of the time` +
      `${job.bottleneck ? `, limited by ${job.bottleneck}` : ""}; ` +
      `cache policy ${job.cache_policy}`),
  ];
  for (const decisions of [job.scaling, job.decisions]) {
    if (decisions.length) parts.push(element("div", { class: "soft" }, decisions.at(-1).reason));
  }
  for (const notice of job.notices) parts.push(element("div", { class: "bad" }, notice));
  if (job.samples.length > 1) {
    parts.push(element("div", { class: "charts" },
      chart("workers (dashed: wanted)", job.samples, [[(s) => s.wanted, "wanted"], [(s) => s.workers, "now"]]),
      chart("ms from batch to batch", job.samples, [[(s) => s.batch_ms, "now"]]),
      chart("share of the trainer's time that it waits", job.samples, [[(s) => s.wait_share, "now"]])));
  }
  parts.push(table(
    ["epoch", "mode", "state", "elements", "seconds", "workers", "ms a batch", "wait %", "worker-seconds", "repeated", "skipped"],
    job.epochs.slice(-SHOWN_EPOCHS).reverse().map((epoch) => [
      epoch.epoch, epoch.direct ? `${epoch.mode} direct` : epoch.mode, epoch.state, epoch.elements, epoch.seconds,
      epoch.workers, epoch.batch_time_ms, Math.round(100 * epoch.wait_fraction), epoch.worker_seconds,
      epoch.repeated, epoch.skipped])));
  const log = [
    ...job.scaling.map((each) => [each.epoch, each.mode, each.workers ? `${each.workers} workers` : "all workers", each.reason]),
    ...job.decisions.map((each) => [each.epoch, each.mode, each.point || "-", each.reason]),
  ].sort((one, other) => other[0] - one[0]).slice(0, SHOWN_DECISIONS);
  if (log.length) {
    parts.push(element("details", { open: "" }, element("summary", {}, "decisions"),
      table(["epoch", "mode", "what", "why"], log)));
  }
  return element("section", {}, ...parts);
}

function storedView(entries) {
  const age = (at) => {
    const seconds = Math.max(0, Date.now() / 1000 - at);
    return seconds < 120 ? `${Math.round(seconds)} s ago` : seconds < 7200 ? `${Math.round(seconds / 60)} min ago`
      : `${Math.round(seconds / 3600)} h ago`;
  };
  const megabytes = entries.reduce((sum, entry) => sum + entry.bytes, 0) / 1e6;
  return element("section", {},
    element("h2", {}, `stored: ${round(megabytes)} MB`),
    table(["job that wrote it", "at", "elements", "MB", "written", "last read", "key"],
      [...entries].sort((one, other) => other.last_used_at - one.last_used_at).map((entry) => [
        entry.job, entry.point, entry.elements, entry.bytes / 1e6, age(entry.created_at), age(entry.last_used_at),
        entry.key.slice(0, 12)])));
}

function show(status) {
  document.title = `Cachew ${status.name}`;
  document.getElementById("name").textContent = status.name;
  document.getElementById("endpoint").textContent = status.endpoint;
  document.getElementById("state").textContent = status.state;
  document.getElementById("notices").replaceChildren(...status.notices.map((text) => element("div", { class: "bad" }, text)));
  document.getElementById("workers").replaceChildren(...status.workers.map((worker) =>
    element("span", { class: worker.state, title: `${worker.id} ${worker.address}` },
      worker.job ? `${worker.state}: ${worker.job}` : worker.state)));
  const live = status.jobs.filter((job) => job.state !== "ended");
  const ended = status.jobs.filter((job) => job.state === "ended");
  document.getElementById("jobs").replaceChildren(...[...live.reverse(), ...ended.reverse()].map(jobView));
  document.getElementById("stored").replaceChildren(...(status.stored.length ? [storedView(status.stored)] : []));
}

async function refresh() {
  const problem = document.getElementById("problem");
  try {
    const response = await fetch("api/status");
    show(await response.json());
    problem.textContent = "";
  } catch (error) {
    problem.textContent = `the service does not answer: ${error}`;
  }
  setTimeout(refresh, REFRESH_MS);
}

refresh();
