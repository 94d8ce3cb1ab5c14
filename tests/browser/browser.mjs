// Chromium for these tests: nothing of its own goes to the network, and whatever a page complains about is a failure.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const modules = process.env.MIDWATCH_TEST_NODE_MODULES;
const chromium = process.env.MIDWATCH_TEST_CHROMIUM;
assert.ok(modules && chromium, "run this through scripts/with-services.sh");
const require = createRequire(`${modules}/`);
const playwright = require("playwright-core");
const axe = require("axe-core").source;

const root = process.getuid?.() === 0;
const quiet = [
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-first-run",
  "--disable-quic",
  "--disable-gpu",
];

export const launch = () =>
  playwright.chromium.launch({
    executablePath: chromium,
    args: [...quiet, ...(root ? ["--no-sandbox"] : [])],
  });

/** A window of its own, whose pages' complaints are gathered. */
export const open = async (browser, options = {}) => {
  const context = await browser.newContext({ locale: "en-GB", timezoneId: "Europe/Berlin", ...options });
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => {
    // What these tests get wrong on purpose is answered with 400, and the browser says so.
    if (message.text().includes("status of 400")) return;
    // A page that is left while it connects says so; one that stays connects again, which is tried by itself.
    if (message.text().includes("htmx:error: Failed to fetch")) return;
    if (["error", "warning"].includes(message.type())) complaints.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error}`));
  return { context, page, complaints };
};

/** What axe finds wrong with a page. */
export const inaccessible = async (page, name) => {
  // The page's policy lets no script in; a test looks from outside of it.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return violations.map(({ id, help, nodes }) => {
    const where = nodes.map((node) => `${node.target.join(" ")}: ${node.failureSummary}`);
    return `${name}: ${id}: ${help}\n    ${where.join("\n    ")}`;
  });
};

/** What reaches beyond the width of the window. */
export const beyond = (page, name) =>
  page.evaluate((name) => {
    const width = document.documentElement.clientWidth;
    const over = [...document.body.querySelectorAll("*")].filter((one) => {
      if (one.closest(".hidden, .skip, thead, svg")) return false;
      return one.getBoundingClientRect().right > width + 1;
    });
    return over.slice(0, 3).map((one) => `${name} is too wide: ${one.outerHTML.slice(0, 160)}`);
  }, name);

/** Kept where `MIDWATCH_TEST_SCREENSHOTS` says, to be looked at. */
export const picture = async (page, name) => {
  const directory = process.env.MIDWATCH_TEST_SCREENSHOTS;
  if (directory) await page.screenshot({ path: `${directory}/${name}.png`, fullPage: true });
};
