// The migration report of a session of traffic: it names what asked and what did not, says nothing of what was answered,
// and what suggest-policy makes of it is a policy that lets the same traffic through.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Client as LegacyClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as LegacyStdio } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport as LegacyHttp } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { watched } from './watch.mjs';
import { call, everything, fixture, makeClient, program, scratch, sleep, textOf } from './valet.mjs';

const asker = ['node', fixture('asker.mjs')];

function run(...args) {
  const { status, stdout, stderr } = spawnSync(program, args, { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return stdout;
}

async function use(t, valet) {
  const client = makeClient(everything, {
    'elicitation/create': async () => { await sleep(100); return { action: 'accept', content: { topic: 'confidential', x: 'confidential' } }; },
    'sampling/createMessage': async () => ({ role: 'assistant', model: 'm', content: { type: 'text', text: 'confidential' } }),
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(valet.url)));
  t.after(() => client.close());
  await client.callTool({ name: 'sample_after_elicit', arguments: {} });
  await client.callTool({ name: 'three_rounds', arguments: {} });
  return textOf(await client.callTool({ name: 'plain', arguments: { n: 1 } }));
}

test('the report names the right tools, and the suggested policy is accepted', { timeout: 30000 }, async t => {
  const socket = join(scratch(t), 'admin');
  const valet = await watched(t, asker, { args: ['--admin', `unix:${socket}`] });
  const plain = await use(t, valet);

  const json = run('report', '--json', '--admin', `unix:${socket}`);
  assert.doesNotMatch(json, /confidential/);
  const entry = name => JSON.parse(json).entries.find(row => row.name === name);
  const both = entry('sample_after_elicit'), three = entry('three_rounds'), none = entry('plain');
  assert.equal(both.asked.elicitation.answered, 1);
  assert.equal(both.asked.sampling.answered, 1);
  assert.equal(both.most_rounds, 2);
  assert.equal(both.forms.length, 1);
  assert.match(both.forms[0].fields, /^topic\??  ?string$|^topic\?? string$/);
  assert.equal(three.most_rounds, 3);
  assert.equal(three.people_count, 3);
  assert.ok(three.people_longest_ms >= 100 && three.people_ms >= 300, JSON.stringify(three));
  assert.equal(none.rounds, 0);
  assert.equal(none.calls.answered, 1);

  const text = run('report', '--admin', `unix:${socket}`);
  const [todo, done] = text.split('Nothing to change');
  assert.match(todo, /^tool three_rounds$[^]*^tool sample_after_elicit$/m); // in order of traffic
  assert.match(todo, /asked: sampling \(1\)/);
  assert.doesNotMatch(todo, /^tool plain$/m);
  assert.match(done, /tool plain/);
  assert.doesNotMatch(done, /other/); // the row of all other requests is nothing to migrate
  assert.doesNotMatch(done, /three_rounds|sample_after_elicit/);

  const file = join(scratch(t), 'report.json'), policy = join(scratch(t), 'policy.yaml');
  writeFileSync(file, json);
  assert.equal(run('report', '--file', file), text);
  writeFileSync(policy, run('suggest-policy', '--file', file));
  assert.equal(run('check-policy', policy), `${policy}: ok\n`);
  assert.match(run('explain', '--policy', policy, 'tool', 'three_rounds'), /sampling: deny/);
  assert.match(run('explain', '--policy', policy, 'tool', 'sample_after_elicit'), /sampling: forward/);
  // With what stands in comments, too: the same traffic gets through.
  const whole = readFileSync(policy, 'utf8').replace(/^#( {2}- match.*\n)#( {4}asks: never)/gm, '$1$2');
  assert.match(whole, /^ {4}asks: never/m);
  const again = await watched(t, asker, { policy: whole });
  assert.equal(await use(t, again), plain);
});

test('names that clients invent hide no tool, and are not told as its tools', { timeout: 60000 }, async t => {
  const socket = join(scratch(t), 'admin');
  const valet = await watched(t, asker, { args: ['--admin', `unix:${socket}`] });
  await call(valet, 'plain', {});
  for (let i = 0; i < 250; i++) await call(valet, `invented-${i}`);
  await use(t, valet);
  const { entries } = JSON.parse(run('report', '--json', '--admin', `unix:${socket}`));
  assert.equal(entries.length, 201);
  assert.deepEqual(entries.filter(entry => entry.known).map(entry => entry.name).sort(), ['plain', 'sample_after_elicit', 'three_rounds']);
  assert.equal(entries.find(entry => entry.name === 'plain').calls.answered, 2);
  const text = run('report', '--admin', `unix:${socket}`);
  const [known, unknown] = text.split('\nCalled, and never with success:\n');
  assert.match(known, /^tool three_rounds$[^]*^tool sample_after_elicit$[^]*Nothing to change[^]*^ {4}tool plain$/m);
  assert.doesNotMatch(known, /invented/);
  assert.match(unknown, /^( {4}tool invented-\d+\n){197}$/);
  assert.doesNotMatch(run('suggest-policy', '--admin', `unix:${socket}`), /invented/);
});

test('with a report file the right tools are named after a restart, too', { timeout: 60000 }, async t => {
  const socket = join(scratch(t), 'admin'), file = join(scratch(t), 'kept.json');
  const start = () => watched(t, asker, { policy: `version: 1\nreport_file: ${file}\n`, args: ['--admin', `unix:${socket}`] });
  const stop = async valet => { valet.child.kill('SIGTERM'); assert.deepEqual(await valet.exited, { code: 0, signal: null }); };
  const first = await start();
  await use(t, first);
  await call(first, 'invented');
  await stop(first);
  assert.equal(statSync(file).mode & 0o777, 0o600);
  const kept = readFileSync(file, 'utf8'), text = run('report', '--file', file);
  assert.doesNotMatch(kept, /confidential/);
  assert.match(text, /^tool three_rounds$[^]*^ {4}rounds: 3, up to 3 in one call$[^]*^tool sample_after_elicit$[^]*Nothing to change[^]*^ {4}tool plain$/m);
  assert.match(text, /never with success:\n {4}tool invented\n$/);

  // The next one says the same before anything has come, and counts on.
  const second = await start();
  assert.equal(run('report', '--admin', `unix:${socket}`), text);
  await use(t, second);
  await call(second, 'two_at_once');
  await stop(second);
  const row = name => JSON.parse(readFileSync(file, 'utf8')).entries.find(entry => entry.name === name);
  assert.equal(row('three_rounds').rounds, 6);
  assert.equal(row('three_rounds').calls.answered, 2);
  assert.equal(row('sample_after_elicit').asked.sampling.answered, 2);
  assert.deepEqual(row('sample_after_elicit').forms, [{ fields: 'topic string', count: 2 }]);
  assert.equal(row('two_at_once').calls.abandoned, 1); // by the end
  const page = await browse(t, file);
  assert.deepEqual(await page.locator('#to-change tbody tr td:first-child').allTextContents(),
    ['three_rounds', 'sample_after_elicit', 'two_at_once']);
  assert.deepEqual(await page.locator('#unknown li bdi').allTextContents(), ['invented']);
});

test('a file that is something else keeps nobody from serving, and stays as it is', { timeout: 30000 }, async t => {
  const file = join(scratch(t), 'notes');
  writeFileSync(file, 'shopping list');
  const valet = await watched(t, asker, { policy: `version: 1\nreport_file: ${file}\n` });
  assert.match(valet.log, /report-file-failed[^\n]*not a whole report[^\n]*move it away/);
  assert.equal((await call(valet, 'plain', { n: 1 })).result.content[0].text, 'plain {"n":1}');
  valet.child.kill('SIGTERM');
  assert.deepEqual(await valet.exited, { code: 0, signal: null });
  assert.equal(readFileSync(file, 'utf8'), 'shopping list');
});

test('legacy clients count as well, over HTTP and stdio', { timeout: 60000 }, async t => {
  for (const face of ['http', 'stdio']) {
    const socket = join(scratch(t), 'admin'), args = ['--admin', `unix:${socket}`];
    const client = new LegacyClient({ name: 'old', version: '1' }, { capabilities: { elicitation: {}, sampling: {} } });
    client.setRequestHandler(ElicitRequestSchema, async () => ({ action: 'accept', content: { topic: 'confidential', x: 'confidential' } }));
    client.setRequestHandler(CreateMessageRequestSchema, async () => ({ role: 'assistant', model: 'm', content: { type: 'text', text: 'confidential' } }));
    t.after(() => client.close());
    await client.connect(face === 'http' ? new LegacyHttp(new URL((await watched(t, asker, { args })).url))
      : new LegacyStdio({ command: program, args: [...args, '--', ...asker], stderr: 'ignore' }));
    await client.callTool({ name: 'sample_after_elicit', arguments: {} });
    await client.callTool({ name: 'three_rounds', arguments: {} });
    await client.callTool({ name: 'plain', arguments: {} });
    await assert.rejects(client.callTool({ name: 'invented', arguments: {} }));
    // Questions of two calls at once belong to neither for certain, where the transport does not say whose they are.
    await Promise.all([client.callTool({ name: 'confirm', arguments: {} }), client.callTool({ name: 'two_at_once', arguments: {} })]);
    const json = run('report', '--json', '--admin', `unix:${socket}`);
    assert.doesNotMatch(json, /confidential/);
    const entry = name => JSON.parse(json).entries.find(row => row.name === name);
    assert.equal(entry('sample_after_elicit').asked.elicitation.forwarded, 1);
    assert.equal(entry('sample_after_elicit').asked.sampling.forwarded, 1);
    assert.equal(entry('sample_after_elicit').calls.answered, 1);
    assert.deepEqual(entry('three_rounds').forms, [{ fields: 'x string', count: 3 }]);
    const questions = ['confirm', 'two_at_once', 'other'].reduce((sum, name) => sum + entry(name).asked.elicitation.forwarded, 0);
    assert.equal(questions, 3);
    const text = run('report', '--admin', `unix:${socket}`);
    assert.match(text, /^tool three_rounds$\n[^]*?asked: elicitation \(3\)$/m);
    assert.match(text, /Nothing to change[^]*^ {4}tool plain$/m);
    assert.match(text, /never with success:\n {4}tool invented\n$/);
  }
});

// The report of a file as a page in a browser, with what it complained of in `page.complaints`.
async function browse(t, file, options) {
  const html = join(scratch(t), 'report.html');
  writeFileSync(html, run('report', '--html', '--file', file));
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
  t.after(() => browser.close());
  const page = await browser.newPage(options);
  page.complaints = [];
  page.on('console', message => page.complaints.push(message.text()));
  page.on('dialog', dialog => { page.complaints.push('a dialog'); dialog.dismiss(); });
  page.on('pageerror', error => page.complaints.push(String(error)));
  page.on('request', request => { if (request.url() !== String(pathToFileURL(html))) page.complaints.push(request.url()); });
  await page.goto(String(pathToFileURL(html)));
  return page;
}

// What the text says, as [name, [[label, words], ...]], in its order.
function parse(text) {
  const [todo] = text.split('\nNothing to change');
  return todo.split('\n\n').slice(1).map(entry => {
    const [name, ...lines] = entry.trim().split('\n');
    return [name, lines.map(line => line.trim().split(/: (.*)/).slice(0, 2))];
  });
}

test('the page says what the text says', { timeout: 60000 }, async t => {
  const socket = join(scratch(t), 'admin'), file = join(scratch(t), 'report.json');
  await use(t, await watched(t, asker, { args: ['--admin', `unix:${socket}`] }));
  writeFileSync(file, run('report', '--json', '--admin', `unix:${socket}`));
  const text = run('report', '--file', file);
  const page = await browse(t, file, { viewport: { width: 360, height: 740 } });
  const said = await page.evaluate(() => [...document.querySelectorAll('#details h3')].map(head => {
    const [name, kind] = head.children, words = [...head.nextElementSibling.children].map(child => child.textContent);
    return [`${kind.textContent} ${name.textContent}`, words.flatMap((word, i) => i % 2 ? [] : [[word, words[i + 1]]])];
  }));
  assert.equal(said.length, 2);
  assert.deepEqual(said, parse(text));
  assert.deepEqual(said[1][1].filter(([label]) => label === 'asked').map(([, words]) => words),
    ['elicitation (1): 1 answered', 'sampling (1): 1 answered']);
  assert.deepEqual(await page.locator('#to-change tbody tr td:first-child').allTextContents(), ['three_rounds', 'sample_after_elicit']);
  assert.deepEqual((await page.locator('#to-change tbody tr').first().locator('td').allTextContents()).slice(0, 7),
    ['three_rounds', 'tool', '1', '3', '3', '0', '0']);
  assert.deepEqual(await page.locator('#ready li').allTextContents(), ['plain tool']);
  assert.equal(await page.textContent('#summary'), '2 to change, 1 with nothing to change, as far as was seen');
  assert.ok(!(await page.content()).includes('confidential'));
  // It fits a phone, and has a dark side.
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing sticks out');
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await back(), 'rgb(255, 255, 255)');
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.equal(await back(), 'rgb(20, 23, 26)');
  assert.deepEqual(page.complaints, []);
});

test('whatever names are, they are text on the page, and its policy lets nothing run', { timeout: 60000 }, async t => {
  const file = join(scratch(t), 'report.json');
  const bad = ['<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', '&lt;b&gt;', "'-alert(1)-'", '</dd></main><style>*{display:none}',
    'x'.repeat(3000), '\u202egnp.exe', '<!--', ']]>', '{{7*7}}'];
  const ask = { elicitation: { forwarded: 1, answered: 1 }, sampling: {}, roots: {} };
  const entries = bad.flatMap(name => [
    { subject: 'tool', name, calls: { answered: 1 }, rounds: 1, most_rounds: 1, asked: ask, forms: [{ fields: name, count: 1 }] },
    { subject: name, name: 'quiet', calls: { answered: 1 } }]);
  writeFileSync(file, JSON.stringify({ version: 1, subscriptions: 3, entries }));
  const page = await browse(t, file, { viewport: { width: 360, height: 740 } });
  assert.deepEqual(await page.locator('#to-change tbody tr td:first-child').allTextContents(), bad);
  assert.deepEqual(await page.locator('#details h3 bdi').allTextContents(), bad);
  assert.deepEqual(await page.locator('#ready li .faint').allTextContents(), bad);
  const forms = await page.locator('#details dd').allTextContents();
  for (const name of bad) assert.ok(forms.some(words => words.startsWith(name.slice(0, 400)) && words.endsWith(' (1)')), name);
  assert.match(await page.textContent('#subscriptions'), /subscriptions\/listen \(3 so far\)/);
  assert.equal(await page.locator('script, img, style ~ style, body style').count(), 0);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing sticks out');
  assert.deepEqual(page.complaints, []);
  // Were there a hole, the policy would still hold: an image, a style and a script of this page's own are refused.
  const policy = await page.getAttribute('meta[http-equiv="Content-Security-Policy"]', 'content');
  assert.match(policy, /^default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]+=*'; base-uri 'none'; form-action 'none'$/);
  await page.evaluate(() => {
    document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="document.title=1"><b onclick="document.title=1">x</b>');
    document.body.append(Object.assign(document.createElement('style'), { textContent: 'body{display:none}' }));
    document.querySelector('body > b').click();
  });
  await sleep(200);
  assert.equal(await page.title(), 'Migration to 2026-07-28');
  assert.notEqual(await page.evaluate(() => getComputedStyle(document.body).display), 'none');
});

test('the page of the report has the basics of accessibility', { timeout: 60000 }, async t => {
  const file = join(scratch(t), 'report.json');
  const asked = { elicitation: { forwarded: 1 } };
  writeFileSync(file, JSON.stringify({ version: 1, entries: [{ subject: 'tool', name: 'a', rounds: 1, asked }, { subject: 'prompt', name: 'b', calls: { answered: 1 } }] }));
  const page = await browse(t, file);
  const found = await page.evaluate(() => ({
    language: document.documentElement.lang,
    title: document.title,
    firstHeadings: document.querySelectorAll('h1').length,
    main: document.querySelectorAll('main').length,
    unnamedHeaders: [...document.querySelectorAll('th')].filter(cell => !cell.textContent.trim() || cell.scope !== 'col').length,
    unnamedRegions: [...document.querySelectorAll('[role=region]')].filter(region =>
      !document.getElementById(region.getAttribute('aria-labelledby'))?.textContent).length,
    levels: [...document.querySelectorAll('h1,h2,h3')].map(head => head.tagName).join(' '),
    ids: [...document.querySelectorAll('[id]')].length - new Set([...document.querySelectorAll('[id]')].map(element => element.id)).size,
  }));
  assert.deepEqual(found, { language: 'en', title: 'Migration to 2026-07-28', firstHeadings: 1, main: 1, unnamedHeaders: 0, unnamedRegions: 0,
    levels: 'H1 H2 H2 H3 H2', ids: 0 });
});

test('names that are no words give a valid policy as well', { timeout: 30000 }, async t => {
  const names = ['quote"d', 'back\\slash', 'a: b', '#x', 'ünï \u2028code', '- x', '{{', '*', 'a?', '?b', ''];
  const zero = { forwarded: 0 };
  const entries = names.map(name => ({ subject: 'tool', name, calls: { answered: 1 }, rounds: 1, most_rounds: 1,
    people_longest_ms: 3600e3, asked: { elicitation: { forwarded: 1 }, sampling: zero, roots: zero } }));
  const file = join(scratch(t), 'report.json'), policy = join(scratch(t), 'policy.yaml');
  writeFileSync(file, JSON.stringify({ version: 1, entries }));
  const text = run('suggest-policy', '--file', file);
  writeFileSync(policy, text);
  assert.match(text, /park: 120m/);
  assert.doesNotMatch(text, /"(\*|a\?|\?b|)" }/); // nothing can name these
  assert.equal(run('check-policy', policy), `${policy}: ok\n`);
  assert.match(run('explain', '--policy', policy, 'tool', 'quote"d'), /park: 2h|park: 120m/);
});

test('what was left out of a name is a pattern in the policy, which matches it', t => {
  const asked = { elicitation: { forwarded: 1 } };
  const entries = ['db://x?\u2026', 'db://x#\u2026', 'db://x', `db://${'y'.repeat(123)}\u2026`, '\u2026', '?\u2026', 'a*\u2026']
    .map(name => ({ subject: 'resource', name, calls: { answered: 1 }, rounds: 1, asked }));
  const file = join(scratch(t), 'report.json'), policy = join(scratch(t), 'policy.yaml');
  writeFileSync(file, JSON.stringify({ version: 1, entries }));
  const text = run('suggest-policy', '--file', file);
  assert.deepEqual([...text.matchAll(/resource: (".*?") }/g)].map(([, name]) => JSON.parse(name)),
    ['db://x?*', 'db://x#*', 'db://x', `db://${'y'.repeat(123)}*`]);
  writeFileSync(policy, text);
  assert.equal(run('check-policy', policy), `${policy}: ok\n`);
  for (const name of ['db://x?token=1', 'db://x#part', 'db://x', `db://${'y'.repeat(200)}`])
    assert.match(run('explain', '--policy', policy, 'resource', name), /sampling: deny/);
  assert.doesNotMatch(run('explain', '--policy', policy, 'resource', 'db://other'), /sampling: deny/);
});

test('what is no report, and nobody there, are errors of one line', t => {
  const file = join(scratch(t), 'x');
  writeFileSync(file, '{"version":2}');
  for (const args of [['--file', file], ['--file', `${file}y`], ['--admin', `unix:${file}`], ['--admin', '127.0.0.1:1']]) {
    const { status, stdout, stderr } = spawnSync(program, ['report', ...args], { encoding: 'utf8' });
    assert.equal(status, 1);
    assert.equal(stdout, '');
    assert.match(stderr, /^mcp-valet: [^\n]+\n$/);
  }
});
