// What a batch size that somebody uses costs, as in bss/advice/receipt.py.

import { costCurve, crossing, lossAt, lossesAt, roundHalfEven, stepSeconds } from "./law.js";

const MORE = 0.01; // tokens, relative to those of the best batch size

// Return the costs of multiples of a batch size in tokens, and the largest within 1% of the tokens.
export function receipt(data, setting, advice, batchTokens, factors, stepTimes = []) {
  const { curve, place } = knownLosses(data.fit, setting, advice);
  const slope = lossSlope(data.fit, place);
  const rows = factors.map((factor) => {
    const size = factor * batchTokens;
    const loss = lossAt(curve, size / advice.value);
    const tokens = loss === null ? null : setting.tokens * Math.exp(loss / slope);
    const steps = tokens && Math.max(1, roundHalfEven(tokens / size));
    const seconds = stepSeconds(stepTimes, size / setting.seqLen);
    return { factor, batchTokens: size, loss, tokens, steps, seconds: steps && seconds && steps * seconds };
  });
  const more = largestWithin(curve, slope * Math.log1p(MORE));
  const largest = ["value", "low", "high"].map((end) => more && more * advice[end]);
  const isNear = place.params !== setting.params || place.tokens !== setting.tokens;
  return { rows, largest, ratio: batchTokens / advice.value, place: isNear ? place : null };
}

// Return losses around the optimum, at the nearest size and budget that the fit measured if it was
// not tested at these.
function knownLosses(fit, setting, advice) {
  if (advice.curve) return { curve: advice.curve, place: setting };
  const place = { ...setting };
  for (const name of ["params", "tokens"]) {
    const { low, high } = fit.tested[name];
    place[name] = Math.min(Math.max(setting[name], low), high);
  }
  return { curve: costCurve(fit, place), place };
}

// Return −dL/dlog D at the best batch size, in nats.
function lossSlope(fit, { params, tokens }) {
  const [less, more] = [1 / fit.near, fit.near].map((times) =>
    Math.min(...lossesAt(fit, params, tokens * times, fit.grid)),
  );
  return (less - more) / (2 * Math.log(fit.near));
}

function largestWithin(curve, nats) {
  const points = curve.factors.map((factor, i) => [Math.log(factor), curve.excess[i]]);
  return crossing(points.filter(([x]) => x >= 0), nats);
}
