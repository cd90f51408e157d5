// The status page in a real browser. SCREENSHOT names a file to write a picture of it to.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';
import { watched } from './watch.mjs';
import { fixture, call, retry, answerAll, sleep } from './valet.mjs';

const asker = ['node', fixture('asker.mjs')];

// The page of a mcp-valet, with what the browser complained of in `page.complaints`.
async function browse(t, valet, options) {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
  t.after(() => browser.close());
  const page = await browser.newPage(options);
  page.complaints = [];
  page.on('console', message => page.complaints.push(message.text()));
  page.on('pageerror', error => page.complaints.push(String(error)));
  page.on('requestfailed', request => page.complaints.push(`${request.url()}: ${request.failure().errorText}`));
  page.on('request', request => { if (new URL(request.url()).pathname !== '/') page.complaints.push(request.url()); });
  await page.goto(`http://127.0.0.1:${valet.adminPort}/`);
  return page;
}

const tcp = { args: ['--admin', '127.0.0.1:0'] };

test('a parked call appears and leaves, without script and without complaints', async t => {
  const valet = await watched(t, asker, tcp);
  const page = await browse(t, valet, { javaScriptEnabled: false });
  assert.equal(await page.textContent('#state'), 'Ready');
  assert.equal(await page.locator('#parked tbody tr').count(), 0);

  const { result } = await call(valet, 'confirm', { what: 'the secret file' });
  // The page comes again by itself.
  await page.waitForSelector('#parked tbody tr', { timeout: 15000 });
  const cells = await page.locator('#parked tbody tr td').allTextContents();
  assert.deepEqual(cells.slice(0, 3), ['tools/call confirm', 'elicitation', '1']);
  assert.match(cells[3], /^\d+ s$/);
  assert.match(cells[4], /^\d+ (s|min)$/);
  assert.deepEqual((await page.locator('#sessions tbody tr td').allTextContents()).slice(1), ['ready', '2025-11-25', '0', '1']);
  const html = await page.content();
  for (const secret of [result.requestState, 'secret file', 'Delete']) assert.ok(!html.includes(secret), secret);

  await retry(valet, 'confirm', { what: 'the secret file' }, result, answerAll(result, { action: 'accept', content: { sure: 'private' } }));
  await page.waitForSelector('#parked tbody tr', { state: 'detached', timeout: 15000 });
  assert.deepEqual((await page.locator('#names tbody tr td').allTextContents()).slice(0, 5), ['confirm', 'tool', '1', '1', '1']);
  assert.ok(!(await page.content()).includes('private'));
  assert.deepEqual(page.complaints, []);
});

test('names are text, whatever is in them, and refusals have their reasons', async t => {
  const valet = await watched(t, asker, tcp);
  const name = '<script>alert(1)</script>&amp;"\'';
  await call(valet, name, {}, {}, { headers: { 'mcp-name': name } });
  await call(valet, 'plain', {}, { requestState: 'forged', inputResponses: {} });
  const page = await browse(t, valet);
  assert.equal(await page.textContent('#names tbody tr td'), name);
  assert.equal(await page.locator('script').count(), 0);
  assert.deepEqual((await page.locator('#refusals tbody tr td').allTextContents()).slice(0, 2), ['unverifiable', '1']);
  assert.deepEqual(page.complaints, []);
});

test('it is styled under its policy, fits a phone, and has a dark side', async t => {
  const valet = await watched(t, asker, tcp);
  for (const n of ['three_rounds', 'confirm', 'two_at_once', 'plain']) await call(valet, n, { what: n });
  const page = await browse(t, valet, { viewport: { width: 360, height: 740 } });
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await back(), 'rgb(255, 255, 255)');
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing sticks out');
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.equal(await back(), 'rgb(20, 23, 26)');
  assert.deepEqual(page.complaints, []);
});

test('the basics of accessibility', async t => {
  const valet = await watched(t, asker, tcp);
  await call(valet, 'confirm', { what: 'x' });
  const page = await browse(t, valet);
  const found = await page.evaluate(() => ({
    language: document.documentElement.lang,
    title: document.title,
    firstHeadings: document.querySelectorAll('h1').length,
    main: document.querySelectorAll('main').length,
    unnamedHeaders: [...document.querySelectorAll('th')].filter(cell => !cell.textContent.trim() || cell.scope !== 'col').length,
    unnamedPictures: [...document.querySelectorAll('svg')].filter(svg => svg.getAttribute('role') !== 'img' || !svg.getAttribute('aria-label')).length,
    unnamedRegions: [...document.querySelectorAll('[role=region]')].filter(region =>
      !document.getElementById(region.getAttribute('aria-labelledby'))?.textContent).length,
    ids: [...document.querySelectorAll('[id]')].length - new Set([...document.querySelectorAll('[id]')].map(element => element.id)).size,
  }));
  assert.deepEqual(found, { language: 'en', title: 'mcp-valet', firstHeadings: 1, main: 1, unnamedHeaders: 0, unnamedPictures: 0,
    unnamedRegions: 0, ids: 0 });
  // WCAG 2 AA: 4.5 to 1 for text, in both schemes.
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    const worst = await page.evaluate(() => {
      const light = color => {
        const [r, g, b] = color.match(/\d+/g).map(value => value / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const back = light(getComputedStyle(document.body).backgroundColor);
      return Math.min(...[...document.querySelectorAll('h1,h2,p,th,td,figcaption')].map(element => {
        const text = light(getComputedStyle(element).color);
        return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
      }));
    });
    assert.ok(worst >= 4.5, `${colorScheme}: ${worst}`);
  }
});

// The picture in the README: some minutes of traffic, for the charts.
if (process.env.SCREENSHOT) test('it takes a picture', async t => {
  const valet = await watched(t, asker, tcp);
  const end = Date.now() + 1000 * (process.env.SCREENSHOT_SECONDS ?? 130);
  for (let n = 1; Date.now() < end; n++) {
    await call(valet, 'plain', { n });
    if (n % 5 === 0) {
      const { result } = await call(valet, 'two_at_once');
      await sleep(400);
      await retry(valet, 'two_at_once', {}, result, answerAll(result, { action: 'accept', content: { a: '1', b: '2' } }));
    }
    if (n % 40 === 0) await call(valet, 'plain', {}, { requestState: 'forged', inputResponses: {} });
    await sleep(200 + 300 * Math.random());
  }
  await call(valet, 'confirm', { what: 'x' });
  const page = await browse(t, valet, { viewport: { width: 1100, height: 700 } });
  await page.screenshot({ path: process.env.SCREENSHOT, fullPage: true });
});
