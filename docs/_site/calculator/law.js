// The fit of published final losses and the advice for one setting, as in bss/laws/final_loss and
// bss/advice. A setting has params, tokens and seqLen; batch sizes are in tokens, losses in nats.

import { answers, pool } from "./rules.js";

const BEYOND = 1 + 1e-9; // a size beyond its range, apart from rounding

// Return the advice for a setting: the batch size, its intervals, and what other sizes cost.
export function advise(data, setting) {
  const pooled = pool(data, setting);
  const curve = costCurve(data.fit, setting);
  return {
    ...pooled,
    inRange: pooled.inside.length > 0,
    sequences: Math.max(1, roundHalfEven(pooled.value / setting.seqLen)),
    curve,
    alone: curve ? bestBatch(data.fit, setting) : null,
    tolerance: tolerance(curve, data.fit.tolerance).map((factor) => factor && factor * pooled.value),
    rules: answers(data, setting),
  };
}

// Return the excess loss, steps and seconds of a multiple of the recommended batch size.
export function cost(advice, setting, factor, stepTimes = []) {
  const size = advice.sequences * setting.seqLen * factor;
  const steps = Math.max(1, roundHalfEven(setting.tokens / size));
  const seconds = stepSeconds(stepTimes, size / setting.seqLen);
  return {
    batchTokens: size,
    loss: lossAt(advice.curve, factor),
    steps,
    seconds: seconds && steps * seconds,
  };
}

// Return the seconds of a step of a number of sequences, from measured pairs [sequences, seconds].
// Between measured sizes a line; above them in proportion; below them as the smallest.
export function stepSeconds(pairs, sequences) {
  if (!pairs.length) return null;
  const sorted = [...pairs].sort((one, other) => one[0] - other[0]);
  const [most, slowest] = sorted.at(-1);
  if (sequences >= most) return (slowest * sequences) / most;
  return interpolate(sequences, sorted.map(([x]) => x), sorted.map(([, y]) => y));
}

// Return the excess loss at a multiple of the optimum; null if it is unknown.
export function lossAt(curve, factor) {
  if (!curve || !(factor >= curve.factors[0] && factor <= curve.factors.at(-1))) return null;
  return interpolate(Math.log(factor), curve.factors.map(Math.log), curve.excess);
}

// Return the multiples of the optimum between which the excess loss is within tolerance.
export function tolerance(curve, nats) {
  if (!curve) return [null, null];
  const logs = curve.factors.map(Math.log);
  const left = logs.map((x, i) => [-x, curve.excess[i]]).filter(([x]) => x >= 0).reverse();
  const right = logs.map((x, i) => [x, curve.excess[i]]).filter(([x]) => x >= 0);
  const low = crossing(left, nats);
  return [low && 1 / low, crossing(right, nats)];
}

// Return the first e^x at which y reaches a level, of ascending points from x = 0; null if it does not.
export function crossing(points, nats) {
  const above = points.findIndex(([, y]) => y > nats);
  if (above < 0) return null;
  const part = points.slice(Math.max(above - 1, 0), above + 1);
  return Math.exp(interpolate(nats, part.map(([, y]) => y), part.map(([x]) => x)));
}

// Return losses around the optimum of the published table; null outside what it was tested for.
export function costCurve(fit, setting) {
  const { params, tokens } = setting;
  if (!isTested(fit, setting) || bestBatch(fit, setting).value === null) return null;
  const losses = lossesAt(fit, params, tokens, fit.grid);
  const own = Math.exp(vertex(fit.grid.map(Math.log), losses));
  const { low, high } = fit.tested.batch_tokens;
  const factors = fit.factors.filter((factor) => own * factor >= low && own * factor <= high);
  const least = Math.min(...losses);
  const there = lossesAt(fit, params, tokens, factors.map((factor) => own * factor));
  return { factors, excess: there.map((loss) => Math.max(loss - least, 0)) };
}

function isTested(fit, setting) {
  return ["params", "tokens"].every((name) => {
    const { low, high, reach } = fit.tested[name];
    const times = Math.max(setting[name] / high, low / setting[name], 1);
    return times <= 1 + fit.same_budget || times <= (setting[name] > high ? reach : 1) * BEYOND;
  });
}

// Return the best batch size of the table's own fit, with the interval of a new optimum.
export function bestBatch(fit, { params, tokens }) {
  const apart = (at) => Math.hypot(Math.log(at.params / params), Math.log(at.tokens / tokens));
  const measured = fit.optima.find((at) => apart(at) < fit.same_budget);
  if (measured) return measured;
  const { variables, theta, inverse, margin } = fit.best;
  const sizes = { params, tokens };
  const row = [1, ...variables.map((name) => Math.log(sizes[name]))];
  const dot = (coefficients) => row.reduce((sum, x, i) => sum + x * coefficients[i], 0);
  const half = margin * Math.sqrt(1 + dot(inverse.map(dot)));
  const ends = [0, -half, half].map((off) => Math.exp(dot(theta) + off));
  const [best, least, most] = ends.map((end) => Math.max(end, fit.seq_len ?? 1));
  return { value: most < fit.wide * least ? best : null, low: least, high: most };
}

// Return expected losses at batch sizes: the form, and the residuals of the rows near by.
export function lossesAt(fit, params, tokens, batches) {
  const n = Math.log(params) - fit.centres[0];
  const d = Math.log(tokens) - fit.centres[1];
  const residual = residualOf(fit, n, d);
  return batches.map((batch) => {
    const b = Math.log(batch) - fit.centres[2];
    const mean = fit.forms.reduce((sum, { form, share, theta }) => sum + share * FORMS[form](theta, n, d, b), 0);
    return mean + residual(b);
  });
}

// The forms of bss.laws.final_loss.forms, without learning rates.
const FORMS = { bowl, steps };

function bowl(theta, n, d, b) {
  const [L0, k, A, a, G, g, h, u, v, best, q, r] = theta;
  const x = b - best - q * d - r * n;
  const size = h + (1 + (q - 1) * u) * d + r * u * n;
  const wasted = Math.exp(size) * ((v * Math.exp(u * x) + u * Math.exp(-v * x)) / (u + v) - 1);
  return L0 + (Math.exp(A - a * n) + Math.exp(G - g * (d - Math.log1p(wasted)))) ** k;
}

function steps(theta, n, d, b) {
  const [L0, k, A, a, G, g, C, c, M, m] = theta;
  const terms = [A - a * n, G - g * d, C - c * (d - b), M - m * b];
  return L0 + terms.reduce((sum, log) => sum + Math.exp(log), 0) ** k;
}

// Return the expected residual at a size N and budget D as a function of the log batch size.
function residualOf(fit, n, d) {
  const { model, shape, lengths, same_model: same } = fit.kernel;
  const near = (away, length) => Math.exp(-0.5 * (away / length) ** 2);
  let ofModel = 0;
  const rows = fit.rows.map(([rowN, rowD, rowB], i) => {
    const weight = fit.residual_weights[i];
    ofModel += weight * model ** 2 * near(n - rowN, same);
    const size = near(n - rowN, lengths[0]) * near(d - rowD, lengths[1]);
    return { b: rowB, weight: weight * shape ** 2 * size };
  });
  return (b) => rows.reduce((sum, row) => sum + row.weight * near(b - row.b, lengths[2]), ofModel);
}

// Return where y at evenly spaced x is least, by a parabola through three points.
export function vertex(x, y) {
  const at = y.indexOf(Math.min(...y));
  if (at === 0 || at === x.length - 1) return x[at];
  const [left, middle, right] = y.slice(at - 1, at + 2);
  const bend = left - 2 * middle + right;
  const shift = bend > 0 ? (left - right) / Math.max(2 * bend, 1e-300) : 0;
  return x[at] + Math.min(Math.max(shift, -1), 1) * (x[1] - x[0]);
}

// Return y at x of a line through points, constant beyond the ends, as numpy.interp.
export function interpolate(x, xs, ys) {
  const after = xs.findIndex((end) => end > x);
  if (after === 0) return ys[0];
  if (after < 0) return ys.at(-1);
  const slope = (ys[after] - ys[after - 1]) / (xs[after] - xs[after - 1]);
  return ys[after - 1] + slope * (x - xs[after - 1]);
}

export function roundHalfEven(value) {
  const rounded = Math.round(value);
  return value % 1 === 0.5 && rounded % 2 ? rounded - 1 : rounded;
}
