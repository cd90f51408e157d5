// The admin endpoint beside real traffic: the numbers are those of what happened, promtool finds no fault with them, and
// nothing that was said is in them.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { connect } from 'node:net';
import { watched } from './watch.mjs';
import { fixture, until, call, retry, answerAll, ask, sleep } from './valet.mjs';

const asker = ['node', fixture('asker.mjs')];

const label = (name, ...more) => `{subject="tool",name="${name}"${more.map(([key, value]) => `,${key}="${value}"`).join('')}}`;

test('the numbers are those of what happened', async t => {
  const valet = await watched(t, asker);
  assert.equal((await valet.metrics()).parked_calls, 0);

  let { result } = await call(valet, 'three_rounds');
  let metrics = await valet.metrics();
  assert.equal(metrics.parked_calls, 1);
  assert.equal(metrics.open_server_requests, 1);
  await sleep(300);
  while (result.resultType === 'input_required')
    ({ result } = await retry(valet, 'three_rounds', {}, result, answerAll(result, { action: 'accept', content: { x: 'confidential' } })));
  await call(valet, 'plain', { n: 1 });
  await ask(valet, 'tools/list');
  const bad = await call(valet, 'plain', {}, { requestState: 'forged', inputResponses: {} });
  assert.equal(bad.error.data.reason, 'unverifiable');

  metrics = await valet.metrics();
  assert.equal(metrics.parked_calls, 0);
  assert.equal(metrics.parked_calls_total, 1);
  assert.equal(metrics['requests_total{method="tools/call"}'], 6);
  assert.equal(metrics['requests_total{method="tools/list"}'], 1);
  assert.equal(metrics[`rounds_total${label('three_rounds')}`], 3);
  assert.equal(metrics[`rounds_total${label('plain')}`], 0);
  assert.equal(metrics[`calls_total${label('three_rounds', ['outcome', 'answered'])}`], 1);
  assert.equal(metrics[`calls_total${label('plain', ['outcome', 'answered'])}`], 1);
  assert.equal(metrics[`server_requests_forwarded_total${label('three_rounds', ['kind', 'elicitation'])}`], 3);
  assert.equal(metrics[`server_requests_total${label('three_rounds', ['kind', 'elicitation'], ['outcome', 'answered'])}`], 3);
  assert.equal(metrics[`people_seconds_count${label('three_rounds')}`], 3);
  const thought = metrics[`people_seconds_sum${label('three_rounds')}`];
  assert.ok(thought >= 0.3 && thought < 10, `${thought} s`);
  assert.equal(metrics['refusals_total{reason="unverifiable"}'], 1);
  assert.equal(metrics.sessions, 1);
  assert.equal(metrics.sessions_opened_total, 1);
  assert.equal(metrics.sessions_lost_total, 0);
  assert.equal(metrics['wait_seconds_bucket{le="+Inf"}'], metrics.wait_seconds_count);
  for (const peer of ['client', 'server'])
    for (const direction of ['in', 'out'])
      assert.ok(metrics[`bytes_total{peer="${peer}",direction="${direction}"}`] > 200, `${peer} ${direction}`);

  const { text } = await valet.admin('/metrics');
  assert.doesNotMatch(text, /confidential|forged/);
});

test('each end of a call and of a question is counted as what it is', async t => {
  const valet = await watched(t, asker, { policy: `
version: 1
rules:
  - match: { tool: confirm }
    park: 1s
  - match: { tool: two_at_once }
    elicitation: decline
` });
  await call(valet, 'confirm', { what: 'x' });
  await call(valet, 'two_at_once');
  await call(valet, 'impatient');
  await until(async () => (await valet.metrics())[`calls_total${label('confirm', ['outcome', 'abandoned'])}`] === 1, 'the abandoned call');
  const kind = ['kind', 'elicitation'];
  let metrics = await until(async () => {
    const now = await valet.metrics();
    return now[`server_requests_total${label('impatient', kind, ['outcome', 'withdrawn'])}`] && now;
  }, 'the withdrawn question');
  assert.equal(metrics[`server_requests_total${label('confirm', kind, ['outcome', 'failed_closed'])}`], 1);
  assert.equal(metrics[`server_requests_total${label('two_at_once', kind, ['outcome', 'denied'])}`], 2);
  assert.equal(metrics[`server_requests_forwarded_total${label('two_at_once', kind)}`], undefined);
  assert.ok(metrics.patience_seconds > 1 && metrics.patience_seconds < 3, `${metrics.patience_seconds} s`);

  const controller = new AbortController();
  const stubborn = call(valet, 'stubborn', { ms: 300 }, {}, { signal: controller.signal });
  await sleep(200);
  controller.abort();
  await assert.rejects(stubborn);
  metrics = await until(async () => {
    const now = await valet.metrics();
    return now[`calls_total${label('stubborn', ['outcome', 'cancelled'])}`] && now;
  }, 'the cancelled call');
  assert.equal(metrics.open_requests, 0);
});

test('promtool finds no fault, whatever the names are', async t => {
  const valet = await watched(t, asker);
  for (const name of ['plain', 'quote"d', 'back\\slash', 'line\nend', 'ünïcode', '\ud800', 'x'.repeat(500)])
    await call(valet, name, {}, {}, { headers: { 'mcp-name': `=?base64?${Buffer.from(name).toString('base64')}?=` } });
  const { result } = await call(valet, 'confirm', { what: 'x' });
  assert.equal(result.resultType, 'input_required');
  const { text, headers } = await valet.admin('/metrics');
  assert.equal(headers['content-type'], 'text/plain; version=0.0.4; charset=utf-8');
  assert.match(text, /name="quote\\"d"/);
  const check = spawnSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' });
  assert.equal(check.error, undefined);
  assert.equal(check.stdout + check.stderr, '');
  assert.equal(check.status, 0);
});

test('a flood of names costs no more than two hundred rows', async t => {
  const valet = await watched(t, asker);
  for (let i = 0; i < 250; i++) await call(valet, `nonsense-${i}`);
  const { text } = await valet.admin('/metrics');
  assert.equal(text.split('\n').filter(line => line.startsWith('mcp_valet_rounds_total{')).length, 201);
  const metrics = await valet.metrics();
  assert.equal(metrics['calls_total{subject="other",name="other",outcome="answered"}'], 50);
});

test('readiness follows the newest session, and ends with the orderly end', async t => {
  const valet = await watched(t, asker);
  assert.equal((await valet.admin('/readyz')).status, 200);
  const slow = call(valet, 'stubborn', { ms: 1500 });
  await sleep(500);
  valet.child.kill('SIGTERM');
  const gone = await until(async () => {
    const answer = await valet.admin('/readyz');
    return answer.status === 503 && answer;
  }, 'not being ready');
  assert.equal(gone.text, 'shutting down\n');
  assert.equal((await valet.admin('/healthz', 'HEAD')).status, 200);
  assert.equal((await slow).result.content[0].text, 'done anyway');
  assert.deepEqual(await valet.exited, { code: 0, signal: null });
});

test('many who connect and do not ask keep no probe waiting', async t => {
  const valet = await watched(t, asker);
  const silent = Array.from({ length: 100 }, () => connect(valet.adminPath).on('error', () => {}));
  t.after(() => silent.forEach(socket => socket.destroy()));
  silent.forEach(socket => socket.write('GET / HT'));
  await sleep(200);
  const start = Date.now();
  assert.equal((await valet.admin('/healthz')).status, 200);
  assert.ok(Date.now() - start < 2000, `${Date.now() - start} ms`);
});
