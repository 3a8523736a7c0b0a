// Plots with uPlot: log axes, hover text under the plot, and colours that follow the page.

import { roundedCount } from "./units.js";

const HEIGHT = 300;
const STEPS = { base: 10, multiples: [1, 2, 5] };
const POWERS_OF_TWO = { base: 2, multiples: [1] };
const COLORS = {
  light: ["#0b4f8a", "#b3541e", "#1b7837", "#762a83", "#8c6d00", "#c2185b", "#00796b", "#5d4037"],
  dark: ["#8cc4ff", "#ffb77a", "#8fd694", "#d3a6e8", "#e6d06a", "#ff9dbd", "#6fd8cb", "#cfb3a6"],
};

const MOST_POINTS = 2000; // of a curve; more draw no better

// Draw loss against tokens of runs, {name, batch, tokens, losses}, into a figure.
export function drawRuns(figure, runs) {
  const batches = [...new Set(runs.map(({ batch }) => batch))];
  const labels = labelsOf(runs.map(({ batch }) => `batch ${batch}`));
  const colored = (run, i) => ({ ...runSeries(run), label: labels[i], color: batches.indexOf(run.batch) });
  draw(figure, {
    series: runs.map(colored),
    x: "tokens",
    y: "loss (nats per token)",
    caption:
      "Loss against tokens of each run, one colour or dash per batch size. Hover for a run, its tokens and " +
      "loss; a legend entry switches its run off.",
  });
}

// Return texts that differ: those of several runs are counted.
function labelsOf(texts) {
  const seen = {};
  return texts.map((text) => {
    seen[text] = (seen[text] ?? 0) + 1;
    const many = texts.filter((other) => other === text).length > 1;
    return many ? `${text} (${seen[text]})` : text;
  });
}

function runSeries({ name, tokens, losses }) {
  const points = tokens.map((count, i) => [count, losses[i]]).filter(([x, y]) => x > 0 && y > 0);
  const every = Math.ceil(points.length / MOST_POINTS);
  const shown = points.filter((_, i) => i % every === 0 || i === points.length - 1);
  const hover = (i) => `${name}: ${roundedCount(shown[i][0])} tokens, loss ${shown[i][1].toFixed(4)}`;
  return { label: name, line: true, points: shown, hover };
}

// Draw a plot into a figure; a later plot replaces it.
// Args: figure with a div.bss-plot and a figcaption; data as of uPlot, in mode 2; series as
// {label, points, line, dots, hover, color}; x and y, labels of the axes; xIsPowers, whether ticks
// are powers of two; caption; band [low, high] of x, shaded; marks {at, text}, vertical lines.
export function draw(figure, { series, x, xIsPowers, y, yIsLog, caption, band, marks = [] }) {
  const host = figure.querySelector(".bss-plot");
  host.replaceChildren();
  figure.querySelector("figcaption").textContent = caption;
  const style = getComputedStyle(figure);
  const colors = figure.closest("[data-dark]") ? COLORS.dark : COLORS.light;
  const ink = style.getPropertyValue("--soft").trim();
  const axis = { stroke: ink, grid: { stroke: style.getPropertyValue("--line").trim() } };
  const hover = document.createElement("div");
  const plot = new uPlot(
    {
      mode: 2,
      width: host.clientWidth || 600,
      height: HEIGHT,
      scales: { x: scaleOf([...series, { points: (band ?? []).map((at) => [at]) }], 0, true), y: scaleOf(series, 1, yIsLog) },
      axes: [
        { ...axis, label: x, ...logAxis(xIsPowers ? POWERS_OF_TWO : STEPS) },
        { ...axis, label: y, size: 64, ...(yIsLog ? logAxis(STEPS) : { values: decimals }) },
      ],
      legend: { show: series.length > 1, live: false },
      cursor: { drag: { x: false, y: false }, focus: { prox: 24 }, points: { show: false } },
      hooks: {
        drawClear: band ? [(self) => shade(self, band, style)] : [],
        draw: [(self) => mark(self, marks, ink)],
      },
      series: [{}, ...series.map((one, i) => seriesOf(one, one.color ?? i, colors))],
    },
    [null, ...series.map(({ points }) => [points.map(([at]) => at), points.map(([, at]) => at)])],
    host,
  );
  hover.className = "bss-hover";
  host.append(hover);
  plot.over.addEventListener("mousemove", () => {
    hover.textContent = hoverText(plot, series);
  });
  const drawing = plot.root.querySelector(".u-wrap");
  drawing.setAttribute("role", "img");
  drawing.setAttribute("aria-label", caption);
  makeButtons(plot);
  return plot;
}

function scaleOf(series, i, isLog) {
  const values = series.flatMap(({ points }) => points.map((point) => point[i]));
  const least = values.reduce((one, other) => Math.min(one, other));
  const most = values.reduce((one, other) => Math.max(one, other));
  if (isLog) return { time: false, distr: 3, range: [least / 1.15, most * 1.15] };
  const space = (most - least) * 0.06 || 1e-3;
  return { time: false, range: [least - space, most + space] };
}

// Lines beyond the last colour are dashed.
function seriesOf({ label, line, dots }, number, colors) {
  return {
    label,
    stroke: colors[number % colors.length],
    dash: number < colors.length ? undefined : [8, 5],
    width: 2,
    fill: undefined,
    facets: [{ scale: "x", auto: false }, { scale: "y", auto: false }],
    paths: (plot, i) => pathOf(plot, i, line, dots),
    points: { show: false },
  };
}

// Return the path of a series: a line through its points, and a dot at each.
function pathOf(plot, i, line, dots) {
  const [xs, ys] = plot.data[i];
  const [stroke, fill] = [new Path2D(), new Path2D()];
  const radius = dots ? 4 * devicePixelRatio : 0;
  xs.forEach((at, j) => {
    const px = plot.valToPos(at, "x", true);
    const py = plot.valToPos(ys[j], "y", true);
    if (line) stroke[j ? "lineTo" : "moveTo"](px, py);
    if (dots) {
      stroke.moveTo(px + radius, py);
      stroke.arc(px, py, radius, 0, 2 * Math.PI);
      if (line) stroke.moveTo(px, py);
    }
  });
  return { stroke, fill: dots && !line ? stroke : fill, flags: 0 };
}

function shade(plot, [low, high], style) {
  const { left, top, width, height } = plot.bbox;
  const ends = [low, high].map((end) => {
    return Math.min(Math.max(plot.valToPos(end, "x", true), left), left + width);
  });
  plot.ctx.save();
  plot.ctx.fillStyle = style.getPropertyValue("--band").trim();
  plot.ctx.fillRect(ends[0], top, ends[1] - ends[0], height);
  plot.ctx.restore();
}

// Draw vertical lines with a text at values of x.
function mark(plot, marks, ink) {
  const { top, height } = plot.bbox;
  for (const { at, text } of marks) {
    const px = plot.valToPos(at, "x", true);
    plot.ctx.save();
    plot.ctx.strokeStyle = ink;
    plot.ctx.fillStyle = ink;
    plot.ctx.setLineDash([6, 4]);
    plot.ctx.beginPath();
    plot.ctx.moveTo(px, top);
    plot.ctx.lineTo(px, top + height);
    plot.ctx.stroke();
    plot.ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    plot.ctx.textAlign = "left";
    plot.ctx.fillText(text, px + 6 * devicePixelRatio, top + 14 * devicePixelRatio);
    plot.ctx.restore();
  }
}

// Return the hover text of the point nearest to the cursor, of the series that are shown.
function hoverText(plot, series) {
  const { left, top } = plot.cursor;
  let best = { away: 40, text: "" };
  series.forEach(({ points, hover }, i) => {
    if (!plot.series[i + 1].show) return;
    points.forEach(([x, y], j) => {
      const away = Math.hypot(plot.valToPos(x, "x") - left, plot.valToPos(y, "y") - top);
      if (away < best.away) best = { away, text: hover(j) };
    });
  });
  return best.text;
}

// Make the entries of the legend work from the keyboard: Enter or Space switches a series.
function makeButtons(plot) {
  for (const entry of [...plot.root.querySelectorAll(".u-legend .u-series th")].slice(1)) {
    entry.setAttribute("role", "button");
    entry.tabIndex = 0;
    entry.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      entry.click();
    });
  }
}

// Return the options of a log axis with ticks at multiples of powers, fewer if they are too close.
function logAxis({ base, multiples }) {
  return {
    filter: (_, ticks) => ticks, // the library's own would blank some on log axes
    values: (_, ticks) => ticks.map(roundedCount),
    splits: (plot, i, low, high) => {
      const powers = Array.from({ length: 64 }, (_, power) => base ** power);
      const every = powers.flatMap((power) => multiples.map((multiple) => multiple * power));
      const inside = every.filter((at) => at >= low && at <= high);
      const most = (i === 0 ? plot.width : plot.height) / 70;
      const sparse = inside.filter((at) => Number.isInteger(Math.log10(at)));
      if (inside.length > most && sparse.length > 1) return sparse;
      return inside.filter((_, j) => j % Math.ceil(inside.length / most) === 0);
    },
  };
}

function decimals(_, ticks) {
  return ticks.map((value) => String(Number(value.toPrecision(4))));
}
