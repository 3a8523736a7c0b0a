// Loss curves of a user's own runs, as in bss/tables/runs.py, bss/points/curve.py and
// bss/points/crossings.py: smoothing, monotone curves, tokens to targets, the measured minimum.

import { interpolate } from "./law.js";
import { parseCount } from "../../../bss/report/plotting/units.js";

const EFOLDS = 0.25; // width of the smoothing window in log tokens
const FEWEST = 3; // losses of a run
const SHARE = 0.6; // of the batch sizes, which reach the lowest target
const NEEDED = ["run", "batch", "seq_len", "step"];

// Return the cells of each line of a CSV text, with its line number; "#" begins a comment.
export function readCells(text) {
  const rows = [];
  let row = { cells: [""], line: 1 };
  let [quoted, closed, line] = [false, false, 1]; // closed: by the quote just before
  const add = (part) => {
    row.cells[row.cells.length - 1] += part;
  };
  const end = () => {
    if (row.cells.some((cell) => cell.trim()) && !row.cells[0].startsWith("#")) rows.push(row);
    row = { cells: [""], line };
  };
  for (const [part] of text.matchAll(/["\n,]|[^"\n,]+/g)) {
    const isQuote = part === '"';
    if (part === "\n") line += 1;
    if (isQuote && closed) add('"');
    else if (!isQuote && quoted) add(part);
    else if (part === ",") row.cells.push("");
    else if (part === "\n") end();
    else if (!isQuote) add(part);
    closed = isQuote && quoted;
    if (isQuote) quoted = !quoted;
  }
  end();
  return rows;
}

// Return the runs of a CSV text: name, batch, seqLen, seed, and steps, tokens and losses.
// Throw an Error with one line of text if the table is not one.
export function readRuns(text) {
  const [head, ...rows] = readCells(text.replace(/^\uFEFF/, "").replace(/\r\n?/g, "\n"));
  const names = (head?.cells ?? []).map((name) => name.trim());
  const column = names.includes("eval_loss") ? "eval_loss" : "loss";
  const lacking = [...NEEDED, column].filter((name) => !names.includes(name));
  if (lacking.length) {
    const has = names.join(", ").slice(0, 80) || "nothing";
    throw new Error(`no column ${lacking.join(", ")}; the first line has ${has}`);
  }
  if (!rows.length) throw new Error("has no rows; write at least one");
  const runs = new Map();
  for (const { cells, line } of rows) {
    const at = Object.fromEntries(names.map((name, i) => [name, (cells[i] ?? "").trim()]));
    addRow(runs, at, column, line);
  }
  return [...runs.values()];
}

function addRow(runs, at, column, line) {
  const refuse = (reason) => {
    throw new Error(`line ${line}: ${reason}`);
  };
  const count = (name, least) => {
    try {
      return parseCount(at[name].replace(/\.0+$/, ""), least);
    } catch (error) {
      return refuse(`${name} ${error.message}`);
    }
  };
  if (!at.run) refuse("run is missing; name the run of every row");
  const loss = at[column] === "" && at.loss && column !== "loss" ? NaN : lossOf(at, column, refuse);
  const [batch, seqLen, step] = [count("batch", 1), count("seq_len", 1), count("step", 0)];
  if (!runs.has(at.run)) {
    const seed = at.seed || "0";
    runs.set(at.run, { name: at.run, batch, seqLen, seed, steps: [], tokens: [], losses: [] });
  }
  const run = runs.get(at.run);
  const before = run.steps.at(-1) ?? 0;
  if (run.steps.length && step <= before) {
    refuse(`step ${step} of run ${at.run} follows ${before}; sort the rows`);
  }
  run.changes ||= batch !== run.batch;
  run.steps.push(step);
  run.tokens.push((run.tokens.at(-1) ?? 0) + (step - before) * batch * seqLen);
  run.losses.push(loss);
}

function lossOf(at, column, refuse) {
  const loss = at[column] === "" ? NaN : Number(at[column]);
  if (loss > 0 && loss < Infinity) return loss;
  const fix = "write a positive number, or drop the rows after divergence";
  return refuse(`${column} is "${at[column].slice(0, 40)}"; ${fix}`);
}

// Return curves, points, and the measured minimum of each target of runs.
// Args: runs of `readRuns`; targets, losses in nats, or how many to choose.
export function measure(runs, targets = 5) {
  const constant = runs.filter((run) => !run.changes);
  const usable = constant.filter((run) => isSeen(run).filter(Boolean).length >= FEWEST);
  if (!usable.length) {
    throw new Error(`no run has one batch size and ${FEWEST} losses after step 0`);
  }
  const curves = usable.map((run) => ({ ...run, ...smoothCurve(run) }));
  const chosen = Array.isArray(targets) ? targets : defaultTargets(curves, targets);
  const descending = chosen.toSorted((one, other) => other - one);
  const points = curves
    .flatMap((curve) => descending.map((target) => pointOf(curve, target)))
    .filter((point) => point !== null);
  const notes = [
    noteOf(runs.length - constant.length, "change their batch size"),
    noteOf(constant.length - usable.length, `have fewer than ${FEWEST} losses`),
  ];
  return { curves, targets: chosen, points, optima: optima(points), notes: notes.filter(Boolean) };
}

function noteOf(count, why) {
  return count ? `${count} runs ${why} and are left out` : "";
}

function isSeen({ tokens, losses }) {
  return tokens.map((count, i) => count > 0 && Number.isFinite(losses[i]));
}

// Return the monotone local fit of one run's losses, up to its lowest.
export function smoothCurve(run) {
  const seen = isSeen(run);
  const x = run.tokens.filter((_, i) => seen[i]).map(Math.log);
  const fitted = localLinear(x, run.losses.filter((_, i) => seen[i]), EFOLDS / 2);
  const last = fitted.indexOf(fitted.reduce((one, other) => Math.min(one, other))) + 1;
  return { logTokens: x.slice(0, last), smooth: decreasing(fitted.slice(0, last)) };
}

// Return least-squares lines over windows of half a width around each x, at x; by prefix sums.
function localLinear(x, y, half) {
  const [shift, level] = [mean(x), mean(y)];
  const [u, v] = [x.map((one) => one - shift), y.map((one) => one - level)];
  const sums = [u, v, u.map((one) => one * one), u.map((one, i) => one * v[i])].map(prefix);
  let [first, end] = [0, 0];
  return x.map((at, i) => {
    while (x[first] < at - half - 1e-9) first += 1;
    while (end < x.length && x[end] < at + half + 1e-9) end += 1;
    const n = end - first;
    const [meanU, meanV, meanUU, meanUV] = sums.map((one) => (one[end] - one[first]) / n);
    const variance = meanUU - meanU ** 2;
    const slope = variance > 1e-12 ? (meanUV - meanU * meanV) / variance : 0;
    return level + meanV + slope * (u[i] - meanU);
  });
}

function prefix(values) {
  const sums = [0];
  for (const value of values) sums.push(sums.at(-1) + value);
  return sums;
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

// Return the closest decreasing values in least squares: pools of adjacent violators.
export function decreasing(values) {
  const pools = [];
  for (const value of values) {
    let pool = { value, count: 1 };
    while (pools.length && pools.at(-1).value <= pool.value) {
      const before = pools.pop();
      const count = before.count + pool.count;
      pool = { value: (before.value * before.count + pool.value * pool.count) / count, count };
    }
    pools.push(pool);
  }
  return pools.flatMap(({ value, count }) => Array(count).fill(value));
}

// Return evenly spaced losses that every run starts above and most batch sizes reach.
export function defaultTargets(curves, count) {
  const highest = Math.min(...curves.map(({ smooth }) => smooth[0]));
  const reached = new Map();
  for (const { batch, smooth } of curves) {
    reached.set(batch, Math.min(reached.get(batch) ?? Infinity, smooth.at(-1)));
  }
  const sorted = [...reached.values()].sort((one, other) => one - other);
  const lowest = sorted[Math.ceil(SHARE * sorted.length) - 1];
  if (!(highest > lowest)) throw new Error("the runs are too short: no loss is common to them");
  const step = (lowest - highest) / count;
  const spaced = Array.from({ length: count }, (_, i) => highest + (i + 1) * step);
  spaced[count - 1] = lowest;
  const span = spaced[0] - spaced.at(-1);
  const decimals = Math.max(3, Math.ceil(1 - Math.log10(span + 1e-9)));
  return spaced.map((target) => Math.ceil(target * 10 ** decimals) / 10 ** decimals);
}

// Return the steps and tokens of a run to a target; null if it is below at its first loss.
function pointOf({ name, batch, seed, steps, tokens, logTokens, smooth }, target) {
  const reached = smooth.at(-1) <= target;
  const point = { run: name, batch, seed, target, reached, tokens: tokens.at(-1) };
  if (!reached) return { ...point, steps: steps.at(-1) };
  const i = smooth.findIndex((loss) => loss <= target);
  if (i === 0) return null;
  const part = (smooth[i - 1] - target) / (smooth[i - 1] - smooth[i]);
  point.tokens = Math.exp(logTokens[i - 1] + part * (logTokens[i] - logTokens[i - 1]));
  return { ...point, steps: interpolate(point.tokens, [0, ...tokens], [0, ...steps]) };
}

// Return the best batch size at each target that some batch size reached in every seed.
export function optima(points) {
  const seeds = [...new Set(points.map(({ seed }) => seed))];
  const targets = [...new Set(points.map(({ target }) => target))];
  return targets.map((target) => optimumAt(points, target, seeds)).filter((one) => one !== null);
}

function optimumAt(points, target, seeds) {
  const batches = informative(logsByBatch(points, target, seeds));
  const whole = batches.filter(({ met }) => met.every(Boolean));
  if (!whole.length) return null;
  const best = lowest(whole, ({ logs }) => mean(logs)).batch;
  const x = batches.map(({ batch }) => Math.log2(batch));
  const bySeed = seeds.map((_, i) =>
    minimumOf(x, batches.map(({ logs }) => logs[i]), batches.map(({ met }) => met[i])),
  );
  const [below, above] = [
    bySeed.some(({ low }) => low === -Infinity),
    bySeed.some(({ high }) => high === Infinity),
  ];
  const bound = below ? (above ? "unknown" : "at most") : above ? "at least" : "";
  const values = bySeed.map(({ value }) => value);
  return {
    target,
    batch: best,
    interior: batches[0].batch < best && best < batches.at(-1).batch,
    log2Batch: mean(values),
    error: errorOf(values, bySeed),
    bound,
    seeds: seeds.length,
  };
}

// Return log tokens to a target by seed, of each batch size that has a run of every seed.
function logsByBatch(points, target, seeds) {
  const found = new Map();
  for (const point of points.filter((one) => one.target === target)) {
    const at = found.get(point.batch) ?? { batch: point.batch, logs: [], met: [] };
    const i = seeds.indexOf(point.seed);
    if (point.reached || !at.met[i]) [at.logs[i], at.met[i]] = [Math.log(point.tokens), point.reached];
    found.set(point.batch, at);
  }
  const sorted = [...found.values()].sort((one, other) => one.batch - other.batch);
  return sorted.filter(({ logs }) => seeds.every((_, i) => logs[i] !== undefined));
}

// Return the batch sizes that reached the target, or took more than the best without it.
function informative(batches) {
  const whole = batches.filter(({ met }) => met.every(Boolean));
  if (!whole.length) return [];
  return batches.filter(({ logs, met }) =>
    logs.every((log, i) => met[i] || log > Math.min(...whole.map((one) => one.logs[i]))),
  );
}

// Return log2 of a seed's best batch size: the minimum of a parabola through three, and its ends.
function minimumOf(x, y, met) {
  const i = y.indexOf(Math.min(...y));
  const last = y.length - 1;
  if (i === 0 || i === last) {
    return { value: x[i], low: i === 0 ? -Infinity : x[i], high: i === last ? Infinity : x[i] };
  }
  const minimum = parabola(x.slice(i - 1, i + 2), y.slice(i - 1, i + 2));
  const low = met[i + 1] ? minimum : (x[i - 1] + x[i]) / 2;
  const high = met[i - 1] ? minimum : (x[i] + x[i + 1]) / 2;
  return { value: Math.min(Math.max(x[i], low), high), low, high };
}

function parabola([x0, x1, x2], [y0, y1, y2]) {
  const [left, right] = [x0 - x1, x2 - x1];
  const [a, b] = [(y0 - y1) / left, (y2 - y1) / right];
  const curvature = (b - a) / (right - left);
  return curvature > 1e-12 ? x1 - (a - curvature * left) / (2 * curvature) : x1;
}

// Return 2 standard errors over seeds, wider by what is open between ends; null if unknown.
function errorOf(values, ends) {
  if (values.length < 2 || !ends.some(({ low, high }) => Number.isFinite(high - low))) return null;
  const center = mean(values);
  const squares = values.reduce((sum, value) => sum + (value - center) ** 2, 0);
  const open = ends.map(({ value, low, high }) => Math.max(high - value, value - low));
  const reach = mean(open.map((apart) => (Number.isFinite(apart) ? apart : 0)));
  return 2 * Math.sqrt(squares / (values.length - 1) / values.length) + reach;
}

function lowest(values, of) {
  return values.reduce((one, other) => (of(other) < of(one) ? other : one));
}
