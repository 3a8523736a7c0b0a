// Published rules and their pool, as in bss/rules and bss/advice/sources.py.

const ROUNDING = 1e-9; // of logarithms

// Return an attribute of a setting by its coefficients of log2 N and log2 D.
export function attribute(axis, setting) {
  return 2 ** (axis[0] * Math.log2(setting.params) + axis[1] * Math.log2(setting.tokens) + axis[2]);
}

// Return what a rule sets for a setting: a power law, or a step function of D.
export function evaluate(law, params, tokens) {
  if (law.steps) return law.steps.findLast(([least]) => tokens >= least)[1];
  const [constant, n, d] = law.log2;
  return 2 ** (constant + n * Math.log2(params) + d * Math.log2(tokens));
}

// Return the names and ranges of the attributes that lie outside the data of a rule.
export function outside(rule, setting, axes) {
  return Object.entries(rule.fitted)
    .map(([name, [low, high]]) => ({ name, low, high, value: attribute(axes[name], setting) }))
    .filter(({ low, high, value }) => value < low * (1 - 1e-12) || value > high * (1 + 1e-12));
}

// Return what every rule sets for a setting.
export function answers(data, setting) {
  return data.rules.map((rule) => {
    const beyond = outside(rule, setting, data.pool.axes);
    return {
      name: rule.name,
      source: rule.source,
      batch: rule.batch,
      batchTokens: evaluate(rule.batch_tokens, setting.params, setting.tokens),
      lr: rule.lr ? evaluate(rule.lr, setting.params, setting.tokens) : null,
      inRange: beyond.length === 0,
      outside: beyond,
    };
  });
}

// Return the pooled best batch size in tokens, its interval, the share of each source, and how far
// the setting lies from the nearest measured range (null inside one).
export function pool(data, setting) {
  const { sources, constants, deviations } = data.pool;
  const found = sources.map((source) => predict(source, setting, data.pool));
  const total = found.reduce((sum, one) => sum + 1 / one.variance, 0);
  const weights = found.map((one) => 1 / one.variance / total);
  const log2 = found.reduce((sum, one, i) => sum + weights[i] * one.log2, 0);
  const half = deviations * Math.hypot(constants.between, total ** -0.5);
  // The interval holds what every source that is out of its range states at the setting.
  const stated = sources
    .filter((_, i) => found[i].distance > ROUNDING)
    .map((source) => evaluate(source.batch_tokens, setting.params, setting.tokens));
  const inside = sources.filter((_, i) => found[i].distance <= ROUNDING).map(({ name }) => name);
  return {
    value: 2 ** log2,
    low: Math.min(2 ** (log2 - half), ...stated),
    high: Math.max(2 ** (log2 + half), ...stated),
    weights: sources.map(({ name }, i) => ({ name, share: weights[i] })),
    inside,
    extrapolation: inside.length ? null : extrapolation(found, setting),
    sources: found,
  };
}

// Return the ratios of a setting to the nearest point of the nearest range.
function extrapolation(found, setting) {
  const at = found.reduce((one, other) => (other.distance < one.distance ? other : one));
  const params = setting.params / at.params;
  const tokens = setting.tokens / at.tokens;
  const factor = Math.max(...[params, tokens].map((ratio) => 2 ** Math.abs(Math.log2(ratio))));
  return { source: at.name, params, tokens, factor };
}

// Return a ratio in two digits, without an exponent.
export function roundedRatio(ratio) {
  return String(Number(ratio.toPrecision(2)));
}

// Return log2 of a source's best batch size, its variance, the distance from its range, and the
// peak learning rate and beta2 at the nearest point of the range.
function predict(source, setting, { constants, axes }) {
  const { n, d, distance } = nearest(source.fitted, setting, constants.params_weight, axes);
  const params = 2 ** n;
  const tokens = Math.max(2 ** d, setting.seqLen);
  const batch = evaluate(source.batch_tokens, params, tokens);
  const variance = constants.between ** 2 + (constants.growth * distance) ** 2;
  return {
    name: source.name,
    log2: Math.log2(batch) + constants.exponent * (Math.log2(setting.tokens) - d),
    variance: variance / source.weight,
    distance,
    params,
    tokens,
    lr: source.lr ? evaluate(source.lr, params, tokens) : null,
    beta2: source.beta2.steps.findLast(([least]) => params >= least * (1 - ROUNDING))[1],
  };
}

// Return the nearest log2 N and log2 D in a range, and the distance in doublings of D.
function nearest(fitted, setting, weight, axes) {
  const at = [Math.log2(setting.params) * weight, Math.log2(setting.tokens)];
  const edges = Object.entries(fitted).flatMap(([name, ends]) =>
    ends.map((end, i) => ({
      row: [axes[name][0] / weight, axes[name][1]],
      end: Math.log2(end) - axes[name][2],
      sign: i === 0 ? 1 : -1,
    })),
  );
  const points = [at, ...edges.map((edge) => projected(at, edge)), ...corners(edges)];
  const inside = points.filter((point) =>
    edges.every(({ row, end, sign }) => sign * (dot(row, point) - end) > -ROUNDING),
  );
  const away = (point) => Math.hypot(point[0] - at[0], point[1] - at[1]);
  const best = (inside.length ? inside : points.slice(1)).reduce((one, other) =>
    away(other) < away(one) ? other : one,
  );
  return { n: best[0] / weight, d: best[1], distance: away(best) };
}

function dot(one, other) {
  return one[0] * other[0] + one[1] * other[1];
}

function projected(at, { row, end }) {
  const step = (end - dot(row, at)) / dot(row, row);
  return [at[0] + step * row[0], at[1] + step * row[1]];
}

// Return the points at which two edges of a range meet.
function corners(edges) {
  const found = [];
  edges.forEach(({ row: [a, b], end: e }, i) => {
    for (const { row: [c, d], end: f } of edges.slice(i + 1)) {
      const determinant = a * d - b * c;
      if (Math.abs(determinant) > ROUNDING) {
        found.push([(e * d - b * f) / determinant, (a * f - e * c) / determinant]);
      }
    }
  });
  return found;
}

// Return a learning rate at another batch size by every scaling rule.
export function scaledRates(data, lr, ratio) {
  return data.scalings.map(({ name, source, power }) => ({ name, source, lr: lr * ratio ** power }));
}
