// Counts and their text ("250M", "1.5B", "2^20"), as in bss/units.py.

export const POWERS = { "": 0, K: 3, M: 6, B: 9, T: 12 };
export const LARGEST = 2 ** 63;

// Return the count that a text means; throw an Error with one line of text otherwise.
export function parseCount(text, least = 1) {
  const shown = text.trim();
  if (!shown) throw new Error("is empty; write a count like 350M");
  const power = /^2\^([0-9]{1,2})$/.exec(shown);
  const number = /^([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e\+?([0-9]{1,2}))?([kmbt]?)$/i.exec(shown);
  if (!power && (!number || shown.length > 40)) {
    throw new Error(`"${shown.slice(0, 40)}" is not a count; write it like 350M, 1.5B, 1e6 or 2048`);
  }
  const count = power ? 2 ** Number(power[1]) : shifted(number);
  if (count >= LARGEST) throw new Error(`${shown} is too large; write a count below 2^63`);
  if (!Number.isInteger(count)) throw new Error(`${shown} is not a whole number`);
  if (count < least) throw new Error(`${shown} is too small; write ${least} or more`);
  return count;
}

// Return a decimal text times its power of ten, rounded once.
function shifted([, digits, exponent, suffix]) {
  return Number(`${digits}e${Number(exponent ?? 0) + POWERS[suffix.toUpperCase()]}`);
}

// Return a positive number; throw an Error with one line of text otherwise.
export function parsePositive(text) {
  const value = /^[0-9.]+(e[-+]?[0-9]+)?$/i.test(text.trim()) ? Number(text) : NaN;
  if (value > 0 && value < 1e30) return value;
  throw new Error(`"${text.trim().slice(0, 40)}" is not a positive number; write it like 3e-4`);
}

// Return the shortest text that parses back to exactly this whole count.
export function formatCount(count) {
  const digits = BigInt(count).toString();
  let best = digits;
  for (const [suffix, power] of Object.entries(POWERS)) {
    if (10 ** power > Math.max(count, 1)) break;
    const at = digits.length - power;
    const rest = digits.slice(at).replace(/0+$/, "");
    const text = digits.slice(0, at) + (power && rest ? `.${rest}` : power ? "" : rest) + suffix;
    if (power && text.length <= best.length) best = text;
  }
  return best;
}

// Return a measured count as text with three digits.
export function roundedCount(count) {
  return formatCount(Math.trunc(Number(count.toPrecision(3))));
}
