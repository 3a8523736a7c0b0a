// The page: reads the question from its fields or the address, shows the answer, and measures a CSV.

import { parseCount, parsePositive, roundedCount } from "../../../bss/report/plotting/units.js";
import { roundedRatio, scaledRates } from "./rules.js";
import { advise, cost, lossAt } from "./law.js";
import { receipt } from "./receipt.js";
import { NOTATIONS, ramp } from "./ramp.js";
import { measure, readRuns } from "./curves.js";
import { draw, drawRuns } from "../../../bss/report/plotting/plots.js";

const FACTORS = [0.5, 1, 2, 4];
const TIME = "Seconds per step are linear between your batch sizes, and proportional to the batch size above.";
const root = document.getElementById("bss-calculator");
const form = document.getElementById("bss-form");
const numbers = JSON.parse(document.getElementById("bss-numbers").textContent);
let own = null; // what was measured of the dropped file

function byId(name) {
  return document.getElementById(`bss-${name}`);
}

// Return an element with a text or children.
function element(name, content = [], attributes = {}) {
  const made = Object.assign(document.createElement(name), attributes);
  made.append(...[content].flat());
  return made;
}

function fillTable(table, head, rows) {
  const cells = head.map((text) => element("th", text, { scope: "col" }));
  const body = rows.map(({ texts: [first, ...rest], strong }) =>
    element("tr", [element("th", first, { scope: "row" }), ...rest.map((text) => element("td", text))], {
      className: strong ? "bss-strong" : "",
    }),
  );
  table.replaceChildren(element("thead", element("tr", cells)), element("tbody", body));
}

// Return the question in the fields, or null if a field is wrong; show one line beside that field.
function readQuestion() {
  const question = {
    params: readField("params", parseCount),
    tokens: readField("tokens", parseCount),
    seqLen: readField("seq_len", parseCount),
    batch: readField("batch", parseCount, true),
    lr: readField("lr", parsePositive, true),
    stepTimes: readField("step_times", parseStepTimes, true) ?? [],
    devices: readField("devices", parseCount, true),
  };
  if (question.tokens < question.seqLen) {
    showError("tokens", "fewer than one sequence; write more tokens or a shorter sequence");
  }
  return form.querySelector("[aria-invalid=true]") ? null : question;
}

function readField(name, parse, isOptional = false) {
  const text = form.elements[name].value;
  showError(name, "");
  if (isOptional && !text.trim()) return null;
  try {
    return parse(text);
  } catch (error) {
    showError(name, error.message);
    return undefined;
  }
}

function showError(name, text) {
  form.elements[name].setAttribute("aria-invalid", text ? "true" : "false");
  byId(name).textContent = text;
}

function parseStepTimes(text) {
  return text.trim().split(/[\s,]+/).map((pair) => {
    const [sequences, seconds, more] = pair.split(":");
    if (seconds === undefined || more !== undefined) {
      throw new Error(`"${pair.slice(0, 40)}" is not SEQUENCES:SECONDS; write it like 64:0.31`);
    }
    return [parseCount(sequences), parsePositive(seconds)];
  });
}

// Show the answer to the question in the fields.
function update() {
  performance.mark("bss-change");
  const question = readQuestion();
  byId("answer").hidden = question === null;
  if (question) {
    history.replaceState(null, "", `#${new URLSearchParams(givenFields())}`);
    showAnswer(question, advise(numbers, question));
  }
  performance.measure("bss-answer", "bss-change");
}

function givenFields() {
  return [...new FormData(form)].filter(([, text]) => text.trim());
}

function showAnswer(question, advice) {
  const { extrapolation } = advice;
  byId("first").textContent =
    `Recommended batch size: ${roundedCount(advice.sequences * question.seqLen)} tokens ` +
    `(${advice.sequences.toLocaleString("en")} sequences of ${question.seqLen.toLocaleString("en")})` +
    (extrapolation ? `, extrapolated ${roundedRatio(extrapolation.factor)} ×` : "");
  showFacts(question, advice);
  showRules(question, advice);
  showCosts(question, advice);
  showReceipt(question, advice);
  showPlot(question, advice);
  showRamp(question, advice);
}

function showFacts(question, advice) {
  const pairs = facts(question, advice).flatMap(([name, text]) => [element("dt", name), element("dd", text)]);
  byId("facts").replaceChildren(...pairs);
}

function facts(question, advice) {
  const { fit, pool } = numbers;
  const shares = advice.weights.map(({ name, share }) => `${name} ${Math.round(100 * share)}%`);
  const found = [
    ["90% interval of the optimum", `${rangeText(advice.low, advice.high)} tokens`],
    [`Within ${fit.tolerance} nats of it`, toleranceText(advice)],
    ["Sources", `${shares.join(", ")}; ${placeText(advice)}`],
    ["Peak learning rate and beta2 there", advice.sources.map(settingsText).join("; ")],
    ["Not covered", `${pool.uncovered}.`],
  ];
  if (advice.alone?.value) {
    const { value, low, high } = advice.alone;
    const text = `${roundedCount(value)} tokens, 90% interval ${rangeText(low, high)}`;
    found.push(["Step-law losses alone", text]);
  }
  if (question.lr && question.batch) found.push(["Learning rate there, from yours", ratesText(question, advice)]);
  if (question.stepTimes.length) found.push(["Time", TIME]);
  if (question.lr && advice.curve) found.push(["Note", "Losses are of learning rates tuned per batch size."]);
  return found;
}

// Return which ranges hold the setting, or how far it lies from the nearest one.
function placeText({ inside, extrapolation }) {
  if (!extrapolation) return `in the range of ${inside.join(" and ")}`;
  const { source, params, tokens } = extrapolation;
  const ratios = `parameters ${roundedRatio(params)} × and tokens ${roundedRatio(tokens)} ×`;
  return `in the range of none; ${ratios} those of the nearest measured run, of ${source}`;
}

function settingsText({ name, params, tokens, lr, beta2 }) {
  const rate = lr ? `${lr.toPrecision(2)}, ` : "";
  return `${name} ${rate}${beta2} (at ${roundedCount(params)}, ${roundedCount(tokens)})`;
}

// Return the user's learning rate at the recommended batch size by the scaling rules.
function ratesText({ lr, batch }, { sequences }) {
  const rates = scaledRates(numbers, lr, sequences / batch);
  const names = Map.groupBy(rates, (rate) => rate.lr.toPrecision(3));
  const texts = [...names].map(([text, some]) => `${text} (${some.map(({ name }) => name).join(", ")})`);
  return texts.join("; ");
}

function toleranceText({ tolerance: [low, high] }) {
  if (low && high) return `${rangeText(low, high)} tokens`;
  if (low || high) return low ? `from ${roundedCount(low)} tokens` : `to ${roundedCount(high)} tokens`;
  return "unknown: outside what the published table was tested for";
}

function showCosts(question, advice) {
  const size = advice.sequences;
  const rows = FACTORS.map((factor) => costRow(question, advice, factor, factor * size));
  if (question.batch) {
    const factor = (question.batch * question.seqLen) / advice.value;
    const shown = question.batch / size; // of the recommended batch size, in whole sequences
    rows.push({ ...costRow(question, advice, shown, question.batch, lossAt(advice.curve, factor)), strong: true });
    rows.at(-1).texts[0] = `yours, × ${shown.toPrecision(2)}`;
  }
  const head = ["Batch size", "Tokens", "Sequences", "Loss above the optimum (nats)", "Steps"];
  fillTable(byId("costs"), question.stepTimes.length ? [...head, "Time"] : head, rows);
}

// Show what the user's batch size, its half, double and fourfold cost.
function showReceipt(question, advice) {
  byId("receipt").hidden = !question.batch;
  if (!question.batch) return;
  const { seqLen, stepTimes, devices } = question;
  const size = question.batch * seqLen;
  const found = receipt(numbers, question, advice, size, FACTORS, stepTimes);
  const inside = size >= advice.low && size <= advice.high ? "inside" : "outside";
  byId("receipt-first").textContent =
    `${roundedCount(size)} tokens (${question.batch.toLocaleString("en")} sequences) is ` +
    `${roundedRatio(found.ratio)} × the best batch size, ${inside} its 90% interval. ${largestText(found, seqLen)}`;
  const head = ["Batch size", "Tokens", "Sequences", "Loss above the optimum (nats)", "Tokens to the best loss", "Steps"];
  if (stepTimes.length) head.push("Time");
  if (stepTimes.length && devices) head.push("Device-hours");
  fillTable(byId("receipt-rows"), head, found.rows.map((row) => receiptRow(row, question)));
  byId("receipt-note").textContent = found.place
    ? `Losses relative to the optimum are those of ${roundedCount(found.place.params)} parameters, ${roundedCount(found.place.tokens)} tokens.`
    : "";
}

function largestText({ largest: [value, low, high] }, seqLen) {
  if (!value) return "The largest batch size within 1% of the tokens is unknown.";
  const sequences = Math.round(value / seqLen).toLocaleString("en");
  const size = `${roundedCount(value)} tokens (${sequences} sequences; 90% interval ${rangeText(low, high)} tokens)`;
  return `The largest batch size within 1% of the tokens is ${size}.`;
}

function receiptRow({ factor, batchTokens, loss, tokens, steps, seconds }, { seqLen, stepTimes, devices }) {
  const known = (value, text) => (value === null ? "unknown" : text(value));
  const texts = [
    factor === 1 ? "yours" : `yours × ${factor}`,
    roundedCount(batchTokens),
    Math.round(batchTokens / seqLen).toLocaleString("en"),
    known(loss, (nats) => nats.toFixed(4)),
    known(tokens, roundedCount),
    known(steps, (count) => count.toLocaleString("en")),
  ];
  if (stepTimes.length) texts.push(known(seconds, timeText));
  if (stepTimes.length && devices) texts.push(known(seconds, (time) => roundedCount((time / 3600) * devices)));
  return { texts, strong: factor === 1 };
}

// Put a known run into the fields; its source stands under the buttons.
function useKnown({ source, name, ...run }) {
  for (const field of ["params", "tokens", "seq_len", "batch"]) form.elements[field].value = run[field];
  byId("known-source").textContent = `${name}: ${source}.`;
  update();
}

function showKnown() {
  const buttons = numbers.known.map((run) => {
    const button = element("button", run.name, { type: "button", title: run.source });
    button.addEventListener("click", () => useKnown(run));
    return button;
  });
  const source = element("p", [], { id: "bss-known-source" });
  byId("known").append(...buttons, source);
}

function costRow(question, advice, factor, sequences, loss) {
  const at = cost(advice, question, factor, question.stepTimes);
  const nats = loss === undefined ? at.loss : loss;
  const texts = [
    factor === 1 ? "recommended" : `× ${factor}`,
    roundedCount(at.batchTokens),
    Math.round(sequences).toLocaleString("en"),
    nats === null ? "unknown" : nats.toFixed(4),
    at.steps.toLocaleString("en"),
  ];
  return { texts: question.stepTimes.length ? [...texts, timeText(at.seconds)] : texts };
}

function timeText(seconds) {
  const [unit, name] = seconds >= 86400 ? [86400, "days"] : seconds >= 3600 ? [3600, "h"] : [60, "min"];
  return `${(seconds / unit).toPrecision(3)} ${name}`;
}

function showPlot(question, advice) {
  const { curve } = advice;
  const points = (curve?.factors ?? []).map((factor, i) => [factor * advice.value, curve.excess[i]]);
  const near = points.filter(([x]) => x > advice.value / 10 && x < advice.value * 10);
  const dots = advice.rules.map(({ batchTokens }) => [batchTokens, 0]);
  const series = [
    { label: "published rules", dots: true, points: dots, hover: (i) => ruleText(advice.rules[i]) },
  ];
  if (near.length) {
    const hover = (i) => `${roundedCount(near[i][0])} tokens: ${near[i][1].toFixed(4)} nats above the optimum`;
    series.unshift({ label: "expected loss above the optimum", line: true, points: near, hover });
  }
  const marks = [{ at: advice.value, text: "optimum" }];
  if (question.batch) {
    const size = question.batch * question.seqLen;
    const loss = lossAt(curve, size / advice.value) ?? 0;
    series.push({ label: "your batch size", dots: true, points: [[size, loss]], hover: () => `yours: ${roundedCount(size)} tokens` });
  }
  const least = near.length ? "Loss above the optimum against batch size" : "Batch sizes of published rules";
  draw(byId("cost"), {
    series,
    marks,
    x: "batch size (tokens)",
    y: "loss above the optimum (nats)",
    band: [advice.low, advice.high],
    caption: `${least}; shaded: 90% interval of the optimum; dots on the axis: published rules.`,
  });
}

function ruleText({ name, batchTokens, batch, inRange }) {
  return `${name}: ${roundedCount(batchTokens)} tokens (${batch}${inRange ? "" : ", out of its range"})`;
}

function showRules(question, advice) {
  const rows = advice.rules.map((rule) => ({
    texts: [
      rule.name,
      rule.batch,
      roundedCount(rule.batchTokens),
      Math.round(rule.batchTokens / question.seqLen).toLocaleString("en"),
      rule.lr ? rule.lr.toPrecision(3) : "–",
      rule.inRange ? "yes" : "no",
      rule.source,
    ],
  }));
  const head = ["Rule", "Batch size is", "Tokens", "Sequences", "Learning rate", "In its range", "Source"];
  fillTable(byId("rules"), head, rows);
  const names = numbers.needing_more.join(", ");
  byId("needing").textContent = `Rules that need more than the fields above: ${names}; see bss rules.`;
}

function showRamp(question, advice) {
  const stages = ramp(numbers, question, advice.sequences);
  byId("ramp").querySelector("pre").textContent = NOTATIONS[byId("trainer").value](question, stages);
}

function rangeText(low, high) {
  return `${roundedCount(low)} to ${roundedCount(high)}`;
}

// Measure a dropped file and show its curves; or one line beside the field.
async function readFile(file) {
  byId("file-error").textContent = "";
  byId("runs").hidden = true;
  own = null;
  if (!file) return;
  try {
    own = measure(readRuns(await file.text()));
  } catch (error) {
    byId("file-error").textContent = `${file.name.slice(0, 60)}: ${error.message}`;
    return;
  }
  showRuns();
}

function showRuns() {
  byId("runs").hidden = false;
  const known = own.optima.at(-1);
  const notes = own.notes.length ? ` ${own.notes.join("; ")}.` : "";
  byId("runs-first").textContent = known
    ? `At the lowest target, ${known.target} nats: ${minimumText(known)}.${notes}`
    : `No target was reached by one batch size in every seed.${notes}`;
  drawRuns(byId("curves"), own.curves);
  draw(byId("points"), {
    series: own.targets.map(targetSeries).filter(({ points }) => points.length),
    x: "batch size (sequences)",
    xIsPowers: true,
    y: "tokens to the target",
    yIsLog: true,
    caption: "Tokens to each target loss against batch size. Runs that missed the target are left out.",
  });
  const rows = own.optima.map((one) => ({
    texts: [`${one.target}`, `${one.batch}`, minimumText(one), one.interior ? "yes" : "no", `${one.seeds}`],
  }));
  const head = ["Target loss (nats)", "Best measured batch", "Measured minimum", "Between measured batches", "Seeds"];
  fillTable(byId("minima"), head, rows);
}

function targetSeries(target) {
  const reached = own.points.filter((point) => point.target === target && point.reached);
  const sorted = reached.sort((one, other) => one.batch - other.batch);
  return {
    label: `loss ${target}`,
    line: true,
    dots: true,
    points: sorted.map(({ batch, tokens }) => [batch, tokens]),
    hover: (i) => `${sorted[i].run}, batch ${sorted[i].batch}: ${roundedCount(sorted[i].tokens)} tokens to loss ${target}`,
  };
}

function minimumText({ log2Batch, error, bound }) {
  const value = (2 ** log2Batch).toPrecision(3);
  if (bound === "unknown") return "the minimum is not bounded";
  const ends = error === null ? "" : ` (${[-error, error].map((by) => (2 ** (log2Batch + by)).toPrecision(3)).join(" to ")})`;
  return `${bound ? `${bound} ` : ""}${value} sequences${bound ? "" : ends}`;
}

// Put the question of the address into the fields; an anchor of the page is no question.
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (!given.has("params")) return;
  for (const field of form.elements) {
    if (field.name) field.value = given.get(field.name) ?? "";
  }
}

function followScheme() {
  const scheme = document.body.dataset.mdColorScheme;
  const prefers = matchMedia("(prefers-color-scheme: dark)").matches;
  root.toggleAttribute("data-dark", scheme ? scheme === "slate" : prefers);
  update();
  if (own) showRuns();
}

function start() {
  showKnown();
  byId("trainer").append(...Object.keys(NOTATIONS).map((name) => element("option", name)));
  for (const name of ["form", "own"]) byId(name).hidden = false;
  byId("usual").open = false;
  readAddress();
  followScheme();
  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  byId("trainer").addEventListener("change", update);
  byId("file").addEventListener("change", (event) => readFile(event.target.files[0]));
  root.addEventListener("dragover", (event) => event.preventDefault());
  root.addEventListener("drop", (event) => {
    event.preventDefault();
    readFile(event.dataTransfer.files[0]);
  });
  addEventListener("hashchange", () => {
    readAddress();
    update();
  });
  addEventListener("resize", followScheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", followScheme);
  new MutationObserver(followScheme).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
}

start();
