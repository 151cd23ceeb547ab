// Opens pages of gemwright in Debian's Chromium and uses them as a reader would.
//
//   node page.mjs PAGE.html... [--screenshots DIR] [--picture FILE.png] [--shows TEXT]
//
// Each page must load without an error on the console and without asking the network for anything, draw its plot, sort and
// filter its tables by clicks, say a word beside a product, be usable by keyboard alone, hold axe's rules in both themes,
// and print.
import { chromium } from "playwright-core";
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";

const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const words = process.argv.slice(2);
const at = words.indexOf("--screenshots");
const screenshots = at < 0 ? null : words.splice(at, 2)[1];
const named = words.indexOf("--picture");
let picture = named < 0 ? null : words.splice(named, 2)[1];
// A text that must stand in the tables as it is: a name that would like to be markup.
const marked = words.indexOf("--shows");
const hostile = marked < 0 ? null : words.splice(marked, 2)[1];
assert.ok(words.length > 0, "no page to open");
const executablePath = process.env.CHROMIUM || "/usr/bin/chromium";
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });

async function until(holds) {
  for (let i = 0; i < 100 && !await holds(); ++i) await new Promise(done => setTimeout(done, 20));
  assert.ok(await holds(), "waited in vain");
}

async function violations(page) {
  const found = await page.evaluate(async source => {
    (0, eval)(source);
    return (await axe.run(document)).violations.map(v => `${v.id}: ${v.nodes.map(n => n.html.slice(0, 120)).join(" | ")}`);
  }, axe);
  return found;
}

for (const file of words) {
  const name = path.basename(file, ".html");
  const errors = [], asked = [];
  // The page's own policy forbids the evaluation that axe needs, so it is checked in a second look.
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme: "light" });
  const page = await context.newPage();
  page.on("console", message => { if (message.type() === "error") errors.push(message.text()); });
  page.on("pageerror", error => errors.push(String(error)));
  page.on("dialog", dialog => { errors.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", request => { if (!request.url().startsWith("file:") && !request.url().startsWith("blob:")) asked.push(request.url()); });
  await page.goto(pathToFileURL(path.resolve(file)).href);
  await page.waitForSelector("html[data-ready]");
  // Milliseconds since the browser began to open the file.
  const load = Number(await page.getAttribute("html", "data-ready"));
  const bytes = fs.statSync(file).size;

  const rows = () => page.locator("#body tr:not([aria-hidden])").count();
  let slowest = 0;
  const circles = await page.locator("#plot circle").count();
  const tables = await page.locator("#which option").count();
  if (tables > 0) {
    assert.ok(await page.locator("#head th").count() > 0, "no column heads");
    // A column of numbers, by a click up and by another down.
    const head = page.locator("#head th.right button").first();
    if (await head.count()) {
      const sorted = () => page.locator("#head th.right").first().getAttribute("aria-sort");
      await head.click();
      await until(async () => await sorted() === "descending");
      await page.locator("#head th.right button").first().click();
      await until(async () => await sorted() === "ascending");
      // However long the table is: a click is answered at once, and its end is there to scroll to.
      const took = await page.evaluate(() => {
        const start = performance.now();
        document.querySelector("#head th.right button").click();
        document.getElementById("frame").getBoundingClientRect();
        return performance.now() - start;
      });
      await page.locator("#frame").evaluate(frame => { frame.scrollTop = frame.scrollHeight; });
      await until(async () => await page.locator("#body tr:last-child[aria-hidden]").count() === 0);
      assert.ok(await rows() > 0 && await rows() < 200, "rows in the document");
      slowest = Math.max(slowest, took);
      assert.ok(took < 1000, `sorting takes ${took} ms`);
    }
    const all = await page.locator("#count").textContent();
    if (hostile) assert.ok(await page.getByText(hostile).count() > 0, "a hostile name is shown as it stands");
    await page.fill("#search", "no row has such a word");
    await until(async () => (await page.locator("#count").textContent()).startsWith("0 of"));
    assert.equal(await rows(), 0, "a filter that nothing fits");
    await page.fill("#search", "");
    await until(async () => await page.locator("#count").textContent() === all);
    const download = page.waitForEvent("download");
    await page.click("#export");
    assert.match((await download).suggestedFilename(), /\.csv$/);
  }
  if (circles > 0) {
    const circle = page.locator("#plot circle").last();
    await circle.hover({ force: true });
    assert.ok(await page.locator("#tip").isVisible(), "no word beside the pointer");
    assert.match(await page.locator("#tip").textContent(), /FLOP\/B| of /);
    // A click chooses it, and its rows are what is left of the tables; another click lets go.
    const before = await page.locator("#count").textContent();
    await circle.dispatchEvent("click");
    assert.ok((await page.inputValue("#search")).length > 0 && await rows() > 0, "a click on a product finds its rows");
    await circle.dispatchEvent("click");
    assert.equal(await page.locator("#count").textContent(), before, "a second click lets go");
    // By keyboard: the plot is one stop, arrows choose, Escape lets go.
    await page.locator("#plot").focus();
    await page.keyboard.press("ArrowRight");
    assert.ok((await page.inputValue("#search")).length > 0, "a chosen product filters the tables");
    assert.ok(await rows() > 0, "a chosen product has rows");
    await page.keyboard.press("Escape");
    assert.equal(await page.inputValue("#search"), "");
  }
  // A change that is told leads to its rows.
  for (const button of (await page.locator("[data-filter]").all()).slice(0, 5)) {
    await button.click();
    assert.ok(await rows() > 0, `no rows for ${await button.getAttribute("data-filter")}`);
  }
  // Tab goes through the page in the order it is read.
  await page.reload();
  await page.waitForSelector("html[data-ready]");
  const stops = [];
  for (let i = 0; i < 40; ++i) {
    await page.keyboard.press("Tab");
    const id = await page.evaluate(() => document.activeElement.id || document.activeElement.className || document.activeElement.tagName);
    stops.push(id);
    if (id === "frame") break;
  }
  const order = ["theme", "print", ...(circles ? ["plot"] : []), ...(tables ? ["which", "search", "export"] : [])];
  const places = order.map(id => stops.indexOf(id));
  assert.ok(places.every((place, i) => place >= 0 && (i === 0 || places[i - 1] < place)), `order of the keyboard: ${stops.join(", ")}`);

  if (picture) {
    // The first page as the README shows it.
    await page.reload();
    await page.waitForSelector("html[data-ready]");
    await page.evaluate(() => scrollTo(0, 0));
    await page.screenshot({ path: picture, clip: { x: 0, y: 0, width: 1280, height: 900 } });
    picture = null;
  }
  if (screenshots) {
    fs.mkdirSync(screenshots, { recursive: true });
    await page.evaluate(() => { document.activeElement.blur(); scrollTo(0, 0); });
    await page.screenshot({ path: path.join(screenshots, `${name}-light.png`), fullPage: true });
    await page.click("#theme");
    await page.screenshot({ path: path.join(screenshots, `${name}-dark.png`), fullPage: true });
    await page.pdf({ path: path.join(screenshots, `${name}.pdf`), format: "A4" });
  }
  await context.close();

  const wrong = [];
  for (const colorScheme of ["light", "dark"]) {
    const second = await browser.newContext({ bypassCSP: true, colorScheme });
    const look = await second.newPage();
    await look.goto(pathToFileURL(path.resolve(file)).href);
    await look.waitForSelector("html[data-ready]");
    wrong.push(...(await violations(look)).map(text => `${colorScheme}: ${text}`));
    await look.emulateMedia({ media: "print" });
    assert.ok(!(await look.locator("#export").isVisible()), "tools are printed");
    await second.close();
  }
  assert.deepEqual(errors, [], "errors on the console");
  assert.deepEqual(asked, [], "the network was asked");
  assert.deepEqual(wrong, [], "rules of accessibility");
  console.log(`${name}: ${(bytes / 1e6).toFixed(2)} MB, ready after ${load} ms, ${circles} circles, ${tables} tables, sorted in ${slowest.toFixed(0)} ms`);
  assert.ok(bytes < 1.5e6 || tables === 0 || process.env.LARGE_PAGES, `${name} has ${bytes} bytes`);
}
await browser.close();
