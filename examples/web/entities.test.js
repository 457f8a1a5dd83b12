// The entities of random texts, and the page in Chromium, with entities.tflite and the files beside it.

import { readFileSync } from "node:fs";
import { expect, test } from "@playwright/test";
import { EntityFinder } from "./entities.js";

const file = (name) => readFileSync(new URL(`entities.tflite${name}`, import.meta.url), "utf-8");
const json = (name) => JSON.parse(file(name));
const finder = new EntityFinder(json(".json"), file(".files/vocab.txt"));

test("entities of random texts equal bertzoo's", () => {
  let found = 0;
  for (const { text, rows, logits, entities } of json(".files/entities.json")) {
    const parts = finder.rows(text);
    expect(parts.rows.map(({ ids }) => ids)).toEqual(rows);
    const units = (points) => Array.from(text).slice(0, points).join("").length; // Python counts code points
    const expected = entities.map((one) => ({ ...one, start: units(one.start), end: units(one.end) }));
    const actual = finder.entities(parts, logits);
    expect(actual).toEqual(expected.map((one) => ({ ...one, score: expect.closeTo(one.score, 5) })));
    for (const { start, end, text: words } of actual) expect(text.slice(start, end)).toBe(words);
    found += actual.length;
  }
  expect(found).toBeGreaterThan(100);
});

test("a model that finds no entities is an error", () => {
  const other = { ...json(".json"), head: { kind: "sequence_classification" } };
  expect(() => new EntityFinder(other, file(".files/vocab.txt"))).toThrow("own.kind");
});

async function entities(page, text) {
  await page.getByLabel("Type a text").fill(text);
  await expect(page.locator("#found[aria-busy=false]")).toBeAttached();
  await expect(page.locator("#error")).toBeEmpty();
  return page.locator("#found li").evaluateAll((rows) => rows.map(({ children: [label, words] }) => [label.textContent, words.textContent]));
}

test("the page marks what the file finds", async ({ page }) => {
  await page.goto("/entities.html");
  let found = 0;
  for (const { texts: [text, ...more], outputs } of json(".files/golden.json")) {
    const parts = finder.rows(text);
    if (more.length || parts.rows.length > 1 || !Array.isArray(outputs[finder.output])) continue;
    const expected = finder.entities(parts, [outputs[finder.output].flat()]);
    expect(await entities(page, text)).toEqual(expected.map(({ label, text }) => [label, text]));
    const marked = await page.locator("#marks").evaluate((element) => {
      const before = (node) => Array.from(element.childNodes).slice(0, Array.from(element.childNodes).indexOf(node));
      const length = (nodes) => nodes.map(({ textContent }) => textContent).join("").length;
      return Array.from(element.querySelectorAll("mark"), (mark) => [length(before(mark)), mark.textContent]);
    });
    expect(marked).toEqual(expected.map(({ start, text }) => [start, text]));
    found += expected.length;
  }
  expect(found).toBeGreaterThan(0);
});

test("a text longer than the rows has entities to its end", async ({ page }) => {
  await page.goto("/entities.html");
  const text = "Zoë 👋 lives in Łódź. ".repeat(40);
  const rows = finder.rows(text);
  expect(rows.rows.length).toBeGreaterThan(2);
  for (const [label, words] of await entities(page, text)) expect([label.length > 0, text]).toEqual([true, expect.stringContaining(words)]);
});

test("the page connects to its own server alone, and fits a phone", async ({ page, baseURL }) => {
  const others = [];
  await page.route((url) => url.origin !== baseURL, (route) => others.push(route.request().url()) && route.abort());
  await page.setViewportSize({ width: 320, height: 640 });
  await page.goto("/entities.html");
  await entities(page, "wide".repeat(50));
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(320);
  expect(others).toEqual([]);
});
