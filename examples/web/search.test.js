// The search page in Chromium, with search.tflite and the files that `bertzoo convert` writes beside it.

import { readFileSync } from "node:fs";
import { expect, test } from "@playwright/test";

const json = (file) => JSON.parse(readFileSync(new URL(file, import.meta.url)));
const { precision } = json("search.tflite.json");
// Largest difference of a cosine from golden.json's: the index keeps int8, and a browser's int8 kernels round otherwise.
const TOLERANCE = precision.startsWith("int") ? 0.02 : 0.005;
const rows = json("search.tflite.files/golden.json").filter(({ texts }) => texts.length === 1);
const cosine = (one, other) =>
  one.reduce((sum, value, at) => sum + value * other[at], 0) / (Math.hypot(...one) * Math.hypot(...other));

async function found(page) {
  await expect(page.locator("#results[aria-busy=false]")).toBeAttached();
  await expect(page.locator("#error")).toBeEmpty();
  const entries = (elements) => elements.map(({ children: [value, text] }) => [text.textContent, Number(value.value)]);
  return page.locator("#results li").evaluateAll(entries);
}

async function search(page, text) {
  await page.getByLabel("Ask a question").fill(text);
  return found(page);
}

async function replaceTexts(page, lines) {
  await found(page);
  await page.locator("details").evaluate((details) => (details.open = true));
  await page.getByLabel("Texts, one on each line").fill(lines.join("\n"));
  return found(page);
}

test("cosines equal those of golden.json", async ({ page }) => {
  await page.goto("/search.html");
  const vectors = new Map(rows.map(({ texts: [text], outputs }) => [text.trim(), outputs.embedding]));
  await replaceTexts(page, [...vectors.keys()]);
  let largest = 0;
  for (const [text, vector] of vectors) {
    const results = await search(page, text);
    expect(results[0][0]).toBe(text);
    for (const [other, shown] of results) {
      const difference = Math.abs(shown - cosine(vector, vectors.get(other)));
      expect(difference, `"${text}" and "${other}"`).toBeLessThanOrEqual(TOLERANCE);
      largest = Math.max(largest, difference);
    }
  }
  expect(vectors.size).toBeGreaterThan(1);
  console.log(`${precision}, ${vectors.size} texts: largest difference ${largest.toPrecision(2)} of ${TOLERANCE}`);
});

test("typed questions find the text that answers them", async ({ page }) => {
  await page.goto("/search.html");
  const answers = { "I cannot sign in": /password/i, "How long until my package comes?": /Parcels take/ };
  for (const [question, answer] of Object.entries(answers)) {
    await page.getByLabel("Ask a question").fill("");
    await page.getByLabel("Ask a question").pressSequentially(question);
    const results = await found(page);
    expect(results.length).toBe(5);
    expect(results.slice(0, 3).map(([text]) => text).join("\n")).toMatch(answer);
    const cosines = results.map(([, value]) => value);
    expect(cosines).toEqual(cosines.toSorted((one, other) => other - one));
  }
  expect(await search(page, "  ")).toEqual([]);
});

test("a later visit takes the kept index, and new texts replace it", async ({ page }) => {
  await page.goto("/search.html");
  const first = await found(page);
  await expect(page.locator("#state")).not.toContainText("kept");
  await page.reload();
  expect(await found(page)).toEqual(first);
  await expect(page.locator("#state")).toContainText("kept");
  expect((await replaceTexts(page, ["The refund takes a week.", "", "Cats sleep."])).length).toBe(2);
  expect(await replaceTexts(page, [""])).toEqual([]);
});

test("the search page connects to its own server alone", async ({ page, baseURL }) => {
  const others = [];
  await page.route((url) => url.origin !== baseURL, (route) => others.push(route.request().url()) && route.abort());
  await page.clock.install();
  await page.goto("/search.html");
  for (let at = 0; at < 100; at++) await page.clock.runFor(100); // the page's own pauses
  await page.clock.runFor(120_000); // MediaPipe sends its metrics every minute
  expect(others).toEqual([]);
});

test("a missing file is an error in the search page", async ({ page }) => {
  await page.route("**/texts.txt", (route) => route.fulfill({ status: 404 }));
  await page.goto("/search.html");
  await expect(page.getByRole("alert")).toContainText("404");
});

test("the search page fits a phone", async ({ page }) => {
  await page.setViewportSize({ width: 320, height: 640 });
  await page.goto("/search.html");
  await replaceTexts(page, ["wide".repeat(50), "narrow"]);
  await search(page, "wide");
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(320);
});
