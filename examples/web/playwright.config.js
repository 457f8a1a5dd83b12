import { defineConfig } from "@playwright/test";

// CHROMIUM: a browser of this machine, such as /usr/bin/chromium, instead of `npx playwright install chromium`.
export default defineConfig({
  testMatch: "*.test.js",
  timeout: 120_000,
  expect: { timeout: 60_000 },
  workers: 1,
  use: { baseURL: "http://127.0.0.1:8000", launchOptions: { executablePath: process.env.CHROMIUM } },
  webServer: { command: "npm start", url: "http://127.0.0.1:8000", stderr: "ignore" },
});
