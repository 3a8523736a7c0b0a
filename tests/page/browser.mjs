// Drive the calculator in headless Chromium and print what happened, as JSON.
// Argument: a JSON text with page, chromium, modules (a folder of npm packages), csv and wrong (files
// to drop), report (a page of bss report), fields, bad (pairs of a field and a text) and, optionally, shots (a folder for pictures).

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const options = JSON.parse(process.argv[2]);
const require = createRequire(`${options.modules}/`);
const { default: puppeteer } = await import(pathToFileURL(require.resolve("puppeteer-core")));
const browser = await puppeteer.launch({
  executablePath: options.chromium,
  args: ["--no-sandbox"],
});
const found = { messages: [], requests: [], violations: [], durations: [], texts: {} };
const page = await browser.newPage();
page.setDefaultTimeout(120_000);
page.on("console", (message) => found.messages.push(message.text()));
page.on("pageerror", (error) => found.messages.push(String(error)));
page.on("request", (request) => found.requests.push(request.url()));

async function text(selector) {
  return page.$eval(selector, (at) => at.textContent);
}

async function type(name, value) {
  await page.$eval(
    `#bss-form [name=${name}]`,
    (field, given) => {
      field.value = given;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    },
    value,
  );
}

async function check(label) {
  await page.addScriptTag({ path: require.resolve("axe-core") });
  const { violations } = await page.evaluate(() => globalThis.axe.run("#bss-calculator"));
  found.violations.push(
    ...violations.map(({ id, nodes }) => `${label}: ${id} ${nodes.map((node) => node.html).join(" ")}`),
  );
}

const url = pathToFileURL(options.page).href;
await page.setViewport({ width: 1280, height: 900 });
await page.goto(`${url}#params=500M&tokens=10B&seq_len=2048&batch=256&lr=3e-4`);
found.texts.fromAddress = await text("#bss-first");
for (const [name, value] of Object.entries(options.fields)) await type(name, value);
found.texts.first = await text("#bss-first");
found.texts.costs = await text("#bss-costs");
found.texts.address = await page.evaluate(() => location.hash);
for (const [name, value] of options.bad) {
  await type(name, value);
  const at = `#bss-${name}`;
  found.texts[`bad ${name} ${value}`] = [await text(at), await page.$eval("#bss-answer", (one) => one.hidden)];
  await type(name, options.fields[name] ?? "");
}
await type("params", "70B");
await type("tokens", "2T");
found.texts.outOfRange = [await text("#bss-first"), await text("#bss-facts")];
for (const name of ["params", "tokens"]) await type(name, options.fields[name]);
found.texts.receipt = [await text("#bss-receipt-first"), await text("#bss-receipt-rows")];
await page.$$eval("#bss-known button", (all) => all.find((one) => one.textContent === "Llama 2 7B").click());
found.texts.known = [await text("#bss-known-source"), await text("#bss-receipt-first"), await text("#bss-receipt-note")];
found.texts.knownAddress = await page.evaluate(() => location.hash);
const upload = await page.$("#bss-file");
await upload.uploadFile(options.wrong);
await page.waitForFunction(() => document.querySelector("#bss-file-error").textContent);
found.texts.wrong = await text("#bss-file-error");
await upload.uploadFile(options.csv);
await page.waitForFunction(() => !document.querySelector("#bss-runs").hidden);
found.texts.minimum = await text("#bss-runs-first");
found.texts.images = await page.$$eval("#bss-runs img", (images) => images.length);
found.durations = await page.evaluate(() =>
  performance.getEntriesByName("bss-answer").map(({ duration }) => duration),
);
await page.$$eval("details", (all) => all.forEach((one) => (one.open = true)));
for (const scheme of ["light", "dark"]) {
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  for (const width of [1280, 400]) {
    await page.setViewport({ width, height: 900 });
    await new Promise((done) => setTimeout(done, 500));
    found.texts[`overflow ${width}`] = await page.evaluate(
      () => document.documentElement.scrollWidth - innerWidth,
    );
    if (options.shots) {
      await page.screenshot({ path: `${options.shots}/${scheme}-${width}.png`, fullPage: true });
    }
    await check(`${scheme} ${width}`);
  }
}
if (options.shots) await page.pdf({ path: `${options.shots}/print.pdf` });
const plain = await browser.newPage();
await plain.setJavaScriptEnabled(false);
await plain.goto(url);
found.texts.plain = await plain.$$eval("#bss-usual tbody tr", (rows) => rows.length);
found.texts.hidden = await plain.$eval("#bss-form", (at) => at.hidden);
await page.goto(pathToFileURL(options.report).href);
await page.waitForFunction(() => document.querySelectorAll("#curves canvas").length);
found.texts.report = await page.evaluate(() => [
  document.querySelector("#curves").hidden,
  document.querySelectorAll("#curves img").length,
  document.querySelectorAll("#curves .u-legend .u-series").length,
]);
if (options.shots) await page.screenshot({ path: `${options.shots}/report.png`, fullPage: true });
await browser.close();
process.stdout.write(JSON.stringify(found));
