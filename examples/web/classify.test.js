// The page in Chromium, with model.tflite and the files that `bertzoo convert` writes beside it.

import { readFileSync } from "node:fs";
import { expect, test } from "@playwright/test";

const json = (file) => JSON.parse(readFileSync(new URL(file, import.meta.url)));
const { precision, head: { labels, thresholds }, tokenizer } = json("model.tflite.json");
// Largest difference of a score from golden.json; a browser's int8 kernels round differently.
const TOLERANCE = ["int8-dynamic", "int8-static", "int4-dynamic"].includes(precision) ? 0.02 : 1e-3;
const rows = json("model.tflite.files/golden.json").filter(({ texts }) => texts.length === 1);

async function scores(page) {
  await expect(page.locator("#scores[aria-busy=false]")).toBeAttached();
  await expect(page.locator("#error")).toBeEmpty();
  await expect(page.locator("#scores[aria-busy=false] label")).toHaveCount(labels.length);
  const entries = (elements) => elements.map((element) => [element.firstChild.textContent, element.control.value]);
  return Object.fromEntries(await page.locator("#scores label").evaluateAll(entries));
}

async function classify(page, text) {
  await page.getByLabel("Type a text").fill(text);
  return scores(page);
}

test("scores equal golden.json", async ({ page }) => {
  await page.goto("/");
  let largest = 0;
  for (const { texts, outputs } of rows) {
    const actual = await classify(page, texts[0]);
    labels.forEach((label, index) => {
      const expected = outputs.probabilities[index];
      expect(Math.abs(actual[label] - expected), `${label} of "${texts[0]}"`).toBeLessThanOrEqual(TOLERANCE);
      largest = Math.max(largest, Math.abs(actual[label] - expected));
    });
  }
  expect(rows.length).toBeGreaterThan(0);
  console.log(`${precision}, ${rows.length} texts: largest difference ${largest.toPrecision(2)} of ${TOLERANCE}`);
});

test("typed sentences get a label, an empty text none", async ({ page }) => {
  await page.goto("/");
  const text = page.getByLabel("Type a text");
  for (const sentence of ["A warm and funny film.", "The plot is thin, and it never ends.", "Why?"]) {
    await text.clear();
    await expect(page.locator("#label")).toBeEmpty();
    await text.pressSequentially(sentence);
    const [[likeliest]] = Object.entries(await scores(page)).sort(([, a], [, b]) => b - a);
    if (!thresholds) await expect(page.locator("#label")).toContainText(likeliest);
  }
});

test("the label reaches its threshold", async ({ page }) => {
  for (const [threshold, words] of [[0, labels], [1, ["none of these"]]]) {
    const document = { ...json("model.tflite.json"), head: { labels, thresholds: labels.map(() => threshold) } };
    await page.route("**/model.tflite.json", (route) => route.fulfill({ json: document }));
    await page.goto("/");
    await classify(page, "Why?");
    expect(words).toContain(await page.locator("#label").textContent());
  }
});

test("accents and invisible characters change no score", async ({ page }) => {
  test.skip(!tokenizer.normalization.strip_accents, "the tokenizer keeps accents");
  await page.goto("/");
  const plain = await classify(page, "a naive film in a cafe");
  expect(await classify(page, "A naïve\u00a0film\u00ad in a CAFE\u0301")).toEqual(plain);
});

test("the page connects to its own server alone", async ({ page, baseURL }) => {
  const others = [];
  await page.route((url) => url.origin !== baseURL, (route) => others.push(route.request().url()) && route.abort());
  await page.clock.install();
  await page.goto("/");
  await classify(page, "A warm and funny film.");
  await page.clock.runFor(120_000); // MediaPipe sends its metrics every minute
  expect(others).toEqual([]);
});

test("a missing model is an error in the page", async ({ page }) => {
  await page.route("**/model.tflite", (route) => route.fulfill({ status: 404 }));
  await page.goto("/");
  await expect(page.getByRole("alert")).toContainText("404");
});

test("the page fits a phone", async ({ page }) => {
  await page.setViewportSize({ width: 320, height: 640 });
  await page.goto("/");
  await classify(page, "wide".repeat(50));
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(320);
});
