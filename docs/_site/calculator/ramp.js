// A batch ramp that follows the best batch size of the tokens consumed so far, in doublings up to
// the recommended one, and its text for trainers, as in bss/schedules and bss/exports.

import { pool } from "./rules.js";
import { formatCount } from "../../../bss/report/plotting/units.js";

export const STAGES = 4;
const LEAST = 4; // sequences of the first stage: rounding moves the last one by an eighth at most

// Return the stages [start in tokens, sequences] of the ramp of a setting, the first start 0. Each
// batch size is twice the one before it, and the last is nearest to the recommended one.
export function ramp(data, setting, sequences) {
  const doublings = Math.min(STAGES - 1, Math.max(0, Math.floor(Math.log2(sequences / LEAST))));
  const first = Math.round(sequences / 2 ** doublings);
  const best = (tokens) => pool(data, { ...setting, tokens }).value / setting.seqLen;
  const found = [[0, first]];
  for (let i = 1; i <= doublings; i += 1) {
    const batch = first * 2 ** i;
    const start = threeDigits(
      firstAbove(best, batch / Math.SQRT2, setting.seqLen, setting.tokens),
    );
    if (start < setting.tokens) found.push([Math.max(start, found.at(-1)[0] + 1), batch]);
  }
  return found;
}

// Return the least count in [low, high] at which a rising function reaches a level, or high.
function firstAbove(rising, level, low, high) {
  let [before, after] = [low - 1, high];
  while (after - before > 1) {
    const middle = Math.floor((before + after) / 2);
    if (rising(middle) >= level) after = middle;
    else before = middle;
  }
  return after;
}

function threeDigits(count) {
  return Math.round(Number(count.toPrecision(3)));
}

// Return whole steps of each batch size over a budget: a switch is at the first step after it.
export function segments(stages, tokens, seqLen) {
  const found = [];
  let [position, step] = [0, 0];
  for (;;) {
    const at = stages.findLastIndex(([start]) => start <= position);
    const batch = stages[at][1];
    const size = batch * seqLen;
    let steps = Math.floor((tokens - position) / size);
    if (steps < 1) return found;
    if (at + 1 < stages.length) {
      steps = Math.min(steps, Math.ceil((stages[at + 1][0] - position) / size));
    }
    found.push({ start: position, firstStep: step, batch, steps });
    position += steps * size;
    step += steps;
  }
}

// The text of a ramp by trainer; each is for a setting and the stages of its ramp.
export const NOTATIONS = {
  bss: (setting, stages) =>
    stages.length === 1
      ? `${stages[0][1]}`
      : stages.map(([start, batch]) => `${formatCount(start)}:${batch}`).join(" "),
  "Megatron-LM": (setting, stages) => {
    const parts = segments(stages, setting.tokens, setting.seqLen);
    const samples = parts.reduce((sum, { batch, steps }) => sum + batch * steps, 0);
    const schedule = parts.map(({ start, batch }) => `${start}:${batch}`).join(" ");
    return [
      `--seq-length ${setting.seqLen}`,
      `--train-samples ${samples}`,
      `--step-batch-size-schedule "${schedule}"`,
    ].join("\n");
  },
  Levanter: (setting, stages) => {
    const parts = segments(stages, setting.tokens, setting.seqLen);
    const lines = parts.map(
      ({ firstStep, batch }) => `    - {start: ${firstStep}, value: ${batch}}`,
    );
    const steps = parts.at(-1).firstStep + parts.at(-1).steps;
    const head = ["trainer:", `  num_train_steps: ${steps}`, "  train_batch_size:"];
    return [...head, ...lines].join("\n");
  },
  "Python lists": (setting, stages) => {
    const parts = segments(stages, setting.tokens, setting.seqLen);
    const list = (name) => `[${parts.map((part) => part[name]).join(", ")}]`;
    return [
      `FIRST = ${list("firstStep")}  # first step of each batch size`,
      `TOKENS = ${list("start")}  # consumed before that step`,
      `BATCH = ${list("batch")}  # batch sizes in sequences`,
    ].join("\n");
  },
};
