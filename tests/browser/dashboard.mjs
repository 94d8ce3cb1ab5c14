// One admin's way through the dashboard, on a running server:
// node dashboard.mjs ADDRESS SIGN_IN_PATH

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";

import { beyond, inaccessible, launch, open, picture } from "./browser.mjs";

const [address, link] = process.argv.slice(2);
const base = `http://${address}`;
const browser = await launch();
const { context, page, complaints } = await open(browser, { viewport: { width: 1360, height: 900 } });
page.setDefaultTimeout(15_000);

// Gathered over the whole way, so that one run shows all of them.
const faults = [];
const accessible = async (name) => faults.push(...(await inaccessible(page, name)));

const go = (path) => page.goto(`${base}${path}`);
// What follows from a request is recorded after its answer: the page is loaded again until it shows it.
const until = async (locator) => {
  for (let tries = 0; tries < 60 && !(await locator.count()); tries += 1) {
    await page.waitForTimeout(250);
    await page.reload();
  }
  await locator.waitFor();
};

const pathOf = () => new URL(page.url()).pathname;

const signIn = async () => {
  await go(link);
  await accessible("signing in");
  await picture(page, "sign-in");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Watch", level: 1 }).waitFor();
  assert.equal(pathOf(), "/");
  const cookie = (await context.cookies()).find(({ name }) => name === "midwatch_session");
  assert.ok(cookie.httpOnly && cookie.sameSite === "Lax");
};

const registerBot = async () => {
  await go("/bots");
  await page.getByLabel("Name").fill("Nightwatch");
  await page.getByRole("button", { name: "Register" }).click();
  await page.getByRole("heading", { name: "Nightwatch" }).waitFor();
};

const createRoutine = async () => {
  await go("/routines/new");
  await page.getByLabel("Name").fill("Tidy the notes");
  await page.getByLabel("Bot", { exact: true }).selectOption({ label: "Nightwatch (recordings only)" });
  await page.getByRole("radio", { name: "A recording" }).check();
  const steps = [
    { tool: "computer_list_files", arguments: { path: "." } },
    { tool: "computer_write_file", arguments: { path: "notes.txt", contents: "All is well.\n" } },
    { tool: "computer_read_file", arguments: { path: "notes.txt" } },
  ];
  await page.getByLabel("The recording, as JSON").fill(JSON.stringify({ steps }));
  // The preview follows what is chosen, and what is chosen can be seen.
  const preview = page.locator("#preview");
  // A new routine starts in the reader's own zone, which the script has said.
  await preview.getByText("Weekdays at 08:00, Europe/Berlin").waitFor();
  await page.getByRole("checkbox", { name: "Sat" }).check();
  await page.getByLabel("At", { exact: true }).fill("08:00, 17:30");
  await page.getByLabel("Time zone").fill("America/New_York");
  await preview.getByText("at 08:00 and 17:30, America/New_York").waitFor();
  await preview.getByText("This runs about 12 times a week: no agent runs").waitFor();
  // The same instants in the reader's zone.
  await preview.getByText("14:00 Europe/Berlin").or(preview.getByText("13:00 Europe/Berlin")).first().waitFor();
  const colour = (day) => page.getByText(day, { exact: true }).evaluate((one) => getComputedStyle(one).backgroundColor);
  assert.equal(await colour("Sat"), await colour("Mon"));
  assert.notEqual(await colour("Sat"), await colour("Sun"));
  await accessible("the form");
  await picture(page, "routine-form");
  // A mistake is said, and nothing that was typed is lost.
  await page.getByRole("radio", { name: "Every so often" }).check();
  await page.getByLabel("Every how many minutes").fill("now and then");
  await preview.getByText("Write a whole number").waitFor();
  await page.getByRole("button", { name: "Create the routine" }).click();
  await page.getByRole("alert").getByText("Nothing was saved.").waitFor();
  // The sentence stands with its field as well.
  assert.equal(await page.getByLabel("Every how many minutes").getAttribute("aria-invalid"), "true");
  await page.locator("#minutes-wrong").getByText("Write a whole number").waitFor();
  await accessible("the form with a mistake");
  assert.match(await page.getByLabel("The recording, as JSON").inputValue(), /All is well/);
  await picture(page, "routine-form-wrong");
  await page.getByLabel("Every how many minutes").fill("1");
  await preview.getByText("Every minute").waitFor();
  await page.getByRole("button", { name: "Create the routine" }).click();
  await page.getByRole("heading", { name: "Tidy the notes" }).waitFor();
  return pathOf();
};

const runsAndIsWatched = async (routine) => {
  // A second window stays on Watch and is told, without being loaded again.
  const watcher = await context.newPage();
  watcher.on("pageerror", (error) => complaints.push(String(error)));
  // Its first connection fails, as on a machine that is too busy: it comes again, and misses nothing.
  let refused = 0;
  await watcher.route("**/live?**", (route) => (refused++ === 0 ? route.abort() : route.continue()));
  await watcher.goto(`${base}/`);
  await watcher.evaluate(() => (window.stayed = true));
  const before = await watcher.locator("#standing b").textContent();
  await page.getByRole("button", { name: "Run now" }).click();
  await page.waitForURL(/\/runs\/[0-9a-f-]{36}/);
  const run = pathOf();
  await watcher.locator("#newer a").waitFor({ timeout: 15_000 });
  assert.ok(refused >= 2);
  await watcher.waitForFunction((text) => document.querySelector("#standing b").textContent !== text, before);
  assert.ok(await watcher.evaluate(() => window.stayed));
  await watcher.close();
  // The run's own page announces what came, and shows it when asked.
  await until(page.getByText("Ended: succeeded"));
  await page.locator(".steps").getByText("computer_write_file").first().waitFor();
  await page.getByText("Decision and words").first().click();
  await page.getByText("What the rules saw").first().waitFor();
  await page.getByText("allow-all").first().waitFor();
  await picture(page, "run");
  const json = await page.request.get(`${base}/api/v1${run}/timeline`);
  assert.equal(json.status(), 200);
  await go(routine);
  await page.getByRole("link", { name: "succeeded" }).first().waitFor();
  return run;
};

const editsTheSchedule = async (routine) => {
  await go(routine);
  await page.getByRole("link", { name: "Change" }).click();
  const preview = page.locator("#preview");
  await preview.getByText("Every minute").waitFor();
  await page.getByRole("radio", { name: "On days of the month" }).check();
  await page.getByLabel("On the days").fill("1, last");
  await page.getByLabel("At", { exact: true }).fill("02:30");
  await page.getByLabel("Time zone").fill("America/Vancouver");
  await preview.getByText("On the 1st and the last day of the month at 02:30, America/Vancouver").waitFor();
  await preview.getByText("by an older copy").waitFor();
  await page.getByRole("radio", { name: "Cron" }).check();
  await page.getByLabel("Cron expression").fill("30 2 * * 1-5");
  await page.getByLabel("Time zone").fill("America/New_York");
  await preview.getByText("Cron 30 2 * * 1-5, America/New_York").waitFor();
  await page.getByText("From, until, spread").click();
  await page.getByLabel("Jitter, in seconds").fill("300");
  await preview.getByText("up to 300 seconds later").waitFor();
  await picture(page, "routine-edit-cron");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("The change is saved.").waitFor();
  await page.getByText("Cron 30 2 * * 1-5, America/New_York").first().waitFor();
  assert.equal(await page.locator(".windows li").count(), 5);
  await page.locator(".windows").getByText("Europe/Berlin").first().waitFor();
  // What was saved comes back into the same fields.
  await page.getByRole("link", { name: "Change" }).click();
  assert.equal(await page.getByLabel("Cron expression").inputValue(), "30 2 * * 1-5");
  assert.equal(await page.getByLabel("Jitter, in seconds").inputValue(), "300");
};

const pausesAndResumes = async (routine) => {
  await go(routine);
  const endings = page.locator(".strip").getByRole("listitem");
  assert.ok((await endings.count()) >= 1);
  assert.match(await endings.first().innerText(), /✓/);
  assert.match(await endings.first().textContent(), /succeeded: /);
  await page.getByText("Pause…").click();
  await page.getByLabel("Why it is paused").fill("Moving house");
  await accessible("pausing");
  await picture(page, "routine-pausing");
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  await page.getByText("It is paused.").waitFor();
  await page.getByText("“Moving house”").waitFor();
  await accessible("a paused routine");
  await picture(page, "routine-paused");
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByText("It is due again.").waitFor();
  assert.equal(await page.getByText("“Moving house”").count(), 0);
};

const choosesTheirZone = async (routine) => {
  await go(routine);
  await page.getByText("Your time zone:").click();
  await page.getByLabel("Show times also in").fill("Asia/Tokyo");
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await page.locator(".windows").getByText("Asia/Tokyo").first().waitFor();
  await page.reload();
  await page.locator(".windows").getByText("Asia/Tokyo").first().waitFor();
};

const trigger = async () => {
  await go("/triggers/new");
  await page.getByLabel("Name").fill("Orders");
  await page.getByRole("radio", { name: "starts a routine" }).check();
  await page.getByLabel("Routine", { exact: true }).selectOption({ label: "Tidy the notes" });
  await picture(page, "trigger-form");
  await page.getByRole("button", { name: "Create the trigger" }).click();
  await page.getByText("This is the only time it is shown.").waitFor();
  const secret = await page.getByLabel("Secret", { exact: true }).inputValue();
  const curl = await page.locator("#curl").textContent();
  const path = curl.match(/\/hooks\/[\w-]+/)[0];
  await accessible("a trigger that was made");
  await picture(page, "trigger-made");
  await page.getByRole("link", { name: "To the trigger" }).click();
  await page.getByText("No delivery has arrived yet.").waitFor();
  const deliver = (body) =>
    fetch(`${base}${path}`, {
      method: "POST",
      headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  const first = await deliver({ order: 17, note: "<script>alert(1)</script>" });
  assert.equal(first.status, 202);
  assert.equal((await first.json()).status, "captured");
  await until(page.getByRole("button", { name: "Read what was posted" }));
  await page.getByRole("button", { name: "Read what was posted" }).click();
  await page.getByText('{"order":17,"note":"<script>alert(1)</script>"}').waitFor();
  await accessible("a trigger with its sample");
  await picture(page, "trigger-sample");
  await page.getByRole("button", { name: "I have read it: confirm" }).click();
  await page.getByText("from now on deliveries become runs").waitFor();
  const second = await deliver({ order: 18 });
  assert.equal((await second.json()).status, "accepted");
  await until(page.getByText("became a run").first());
  await page.getByRole("link", { name: "to the run" }).first().waitFor();
  return { hook: pathOf(), path, secret };
};

// Another kind of sender takes the place of the first, once its pasted sample verifies.
const anotherSender = async ({ hook, path, secret }) => {
  const key = "what-github-was-told";
  const body = JSON.stringify({ ref: "refs/heads/main" });
  const signature = (by) => `sha256=${createHmac("sha256", by).update(body).digest("hex")}`;
  await go(hook);
  await page.getByRole("link", { name: "Let another kind of sender post here…" }).click();
  await page.getByLabel("Sender", { exact: true }).selectOption("github");
  await page.getByLabel("The secret it signs with").fill(key);
  await page.getByText("See whether a sample request of it verifies").click();
  const headers = ["X-GitHub-Event: push", "X-GitHub-Delivery: 1"];
  const sample = (by) => [...headers, `X-Hub-Signature-256: ${signature(by)}`, "", body].join("\n");
  await page.getByLabel("Its headers, an empty line, its body").fill(sample("something else"));
  await page.getByRole("button", { name: "See whether it verifies" }).click();
  await page.getByRole("status").filter({ hasText: "It does not" }).waitFor();
  await accessible("a sample that does not verify");
  await picture(page, "sender-refused");
  await page.getByLabel("The secret it signs with").fill(key);
  await page.getByLabel("Its headers, an empty line, its body").fill(sample(key));
  await page.getByRole("button", { name: "See whether it verifies" }).click();
  await page.getByRole("status").filter({ hasText: "It verifies" }).waitFor();
  await picture(page, "sender-verified");
  await page.getByLabel("The secret it signs with").fill(key);
  await page.getByRole("button", { name: "Let this sender post here" }).click();
  await page.getByText("The old secret opens nothing any more.").waitFor();
  await accessible("another sender");
  const post = (given) => fetch(`${base}${path}`, { method: "POST", headers: { "content-type": "application/json", ...given }, body });
  assert.equal((await post({ authorization: `Bearer ${secret}` })).status, 401);
  const github = { "x-github-event": "push", "x-github-delivery": "2", "x-hub-signature-256": signature(key) };
  assert.equal((await post(github)).status, 202);
  await go(hook);
  await page.getByText("GitHub", { exact: true }).first().waitFor();
};

const boundary = async () => {
  await go("/boundaries/edit");
  await page.getByRole("button", { name: "Add Stop a Bot repeating itself" }).click();
  await page.getByText("could be published").waitFor();
  const text = await page.getByLabel("JSON").inputValue();
  await page.getByLabel("JSON").fill(text.replace("repeat.count", "repeat.cuont"));
  await page.getByRole("button", { name: "Check" }).click();
  await page.getByText("no-repeats").first().waitFor();
  await page.locator(".findings").waitFor();
  await accessible("findings");
  await picture(page, "boundary-findings");
  await page.getByLabel("JSON").fill(text);
  await page.getByLabel("Why it is published").fill("Going in circles at night");
  await page.getByRole("button", { name: "Publish" }).click();
  await page.getByText("In force: version 2").waitFor();
};

const everyPage = async (paths) => {
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    for (const [width, name] of [
      [1360, "desktop"],
      [390, "phone"],
    ]) {
      await page.setViewportSize({ width, height: 900 });
      for (const [title, path] of paths) {
        await go(path);
        await accessible(`${title} (${scheme}, ${name})`);
        faults.push(...(await beyond(page, `${title} (${name})`)));
        await picture(page, `${title}-${scheme}-${name}`);
      }
    }
  }
};

const withoutScript = async (paths) => {
  const { context: plain, page: reader } = await open(browser, { javaScriptEnabled: false });
  await plain.addCookies(await context.cookies());
  for (const [title, path] of paths) {
    const response = await reader.goto(`${base}${path}`);
    assert.equal(response.status(), 200, title);
    assert.ok(await reader.locator("h1").first().isVisible(), title);
  }
  await reader.goto(`${base}/routines/new`);
  await reader.getByLabel("Name").fill("By hand");
  await reader.getByRole("button", { name: "Preview" }).click();
  assert.equal(await reader.getByLabel("Name").inputValue(), "By hand");
  await plain.close();
};

const byKeyboard = async () => {
  await go("/");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "To the content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
};

const haltAndLift = async () => {
  await go("/");
  await page.getByLabel("Why", { exact: true }).fill("Moving house");
  await page.getByRole("button", { name: "Halt scheduling" }).click();
  await page.getByText("Scheduling is halted.").waitFor();
  await accessible("halted");
  await picture(page, "halted");
  await page.getByRole("button", { name: "Lift the halt" }).click();
  await page.getByText("The halt is lifted.").waitFor();
};

try {
  await signIn();
  await registerBot();
  const routine = await createRoutine();
  const run = await runsAndIsWatched(routine);
  await editsTheSchedule(routine);
  await pausesAndResumes(routine);
  await choosesTheirZone(routine);
  const made = await trigger();
  const { hook } = made;
  await anotherSender(made);
  await boundary();
  const bot = await page.goto(`${base}/bots`).then(() => page.getByRole("link", { name: "Nightwatch" }).getAttribute("href"));
  const paths = [
    ["watch", "/"],
    ["routines", "/routines"],
    ["routine", routine],
    ["routine-new", "/routines/new"],
    ["routine-edit", `${routine}/edit`],
    ["runs", "/runs"],
    ["run", run],
    ["audit", "/audit"],
    ["audit-refused", "/audit?q=decision:refused"],
    ["audit-wrong", "/audit?q=colour:red"],
    ["triggers", "/triggers"],
    ["trigger", hook],
    ["trigger-new", "/triggers/new"],
    ["trigger-sender", `${hook}/sender`],
    ["trigger-intake", `${hook}/intake`],
    ["deliveries", "/deliveries"],
    ["redeliveries", "/redeliveries"],
    ["notices", "/notices"],
    ["approvals", "/approvals"],
    ["boundaries", "/boundaries"],
    ["boundary-edit", "/boundaries/edit"],
    ["bots", "/bots"],
    ["bot", bot],
    ["system", "/system"],
  ];
  await everyPage(paths);
  await withoutScript(paths);
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1360, height: 900 });
  await byKeyboard();
  await haltAndLift();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByText("midwatch user link").waitFor();
  assert.deepEqual(faults.join("\n"), "");
  assert.deepEqual(complaints, []);
} catch (error) {
  await picture(page, "failed");
  console.error(`${page.url()}\n${(await page.locator("body").innerText().catch(() => "")).slice(0, 2_000)}`);
  console.error([...faults, ...complaints].join("\n"));
  throw error;
} finally {
  await browser.close();
}
