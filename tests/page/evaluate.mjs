// Evaluate the calculator's modules on settings or tables read from stdin, as JSON to stdout.

import { readFileSync } from "node:fs";
import { advise, cost } from "../../docs/_site/calculator/law.js";
import { scaledRates } from "../../docs/_site/calculator/rules.js";
import { receipt } from "../../docs/_site/calculator/receipt.js";
import { NOTATIONS, ramp } from "../../docs/_site/calculator/ramp.js";

const { data, settings = [], tables = [], targets = 5 } = JSON.parse(readFileSync(0, "utf8"));

const found = settings.map((setting) => {
  const advice = advise(data, setting);
  const stages = advice.sequences ? ramp(data, setting, advice.sequences) : [[0, 1]];
  return {
    advice,
    receipt: receipt(data, setting, advice, 1.5 * advice.sequences * setting.seqLen, [0.5, 1, 2, 4]),
    costs: [0.5, 1, 2, 4].map((factor) => cost(advice, setting, factor)),
    rates: scaledRates(data, 3e-4, 4),
    stages,
    texts: Object.fromEntries(
      Object.entries(NOTATIONS).map(([name, text]) => [name, text(setting, stages)]),
    ),
  };
});

let measured = [];
if (tables.length) {
  const { measure, readRuns } = await import("../../docs/_site/calculator/curves.js");
  measured = tables.map((text) => {
    try {
      return measure(readRuns(text), targets);
    } catch (error) {
      return { refused: error.message };
    }
  });
}
process.stdout.write(JSON.stringify({ found, measured }));
