// Child processes that die, hang, flood and mumble do not take mcp-valet with them.
import test from 'node:test';
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { answerAll, ask, call, children, fixture, recorded, retry, scratch, serve, sleep, textOf, until } from './valet.mjs';

const misbehaving = kind => ['node', fixture('misbehaving.mjs'), kind];
const asker = ['node', fixture('asker.mjs')];

test('a child killed while a call is parked: the retry says so, the next call works', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker);
  const { result } = await call(valet, 'confirm', { what: 'x' });
  process.kill(children(valet.pid)[0], 'SIGKILL');
  await sleep(200);
  const { error } = await retry(valet, 'confirm', { what: 'x' }, result, answerAll(result, { action: 'accept', content: { sure: 'y' } }));
  assert.equal(error.code, -32603);
  assert.equal(error.data.reason, 'lost');
  assert.match(error.message, /lost and may have had effects/);
  assert.equal(textOf((await call(valet, 'plain')).result), 'plain {}');
});

test('a child killed while it works: one clear error, the next call works', { timeout: 20000 }, async t => {
  const record = join(scratch(t), 'record');
  const valet = await serve(t, asker, { env: { RECORD: record } });
  const pending = call(valet, 'stubborn', { ms: 10000 });
  await until(() => recorded(record).length, 'the tool to start');
  process.kill(children(valet.pid)[0], 'SIGKILL');
  assert.equal((await pending).error.data.reason, 'lost');
  assert.equal(textOf((await call(valet, 'plain')).result), 'plain {}');
});

test('banners and CRLF are tolerated', { timeout: 20000 }, async t => {
  const valet = await serve(t, misbehaving('banner'));
  assert.match(textOf((await call(valet, 'a')).result), /hello from banner a/);
});

test('one byte at a time', { timeout: 20000 }, async t => {
  const valet = await serve(t, misbehaving('slow'));
  assert.match(textOf((await call(valet, 'a')).result), /hello from slow a/);
});

test('a flood of other lines does not stall anybody', { timeout: 20000 }, async t => {
  const valet = await serve(t, misbehaving('flood'));
  for (let i = 0; i < 3; i++) {
    const start = Date.now();
    assert.match(textOf((await call(valet, 'a')).result), /hello from flood/);
    assert.equal((await ask(valet, 'no/such/method')).status, 404);
    assert.ok(Date.now() - start < 5000);
  }
});

test('a child that never reads: errors in time, others are served', { timeout: 30000 }, async t => {
  const valet = await serve(t, misbehaving('deaf'), { policy: 'version: 1\ndeadlines: { initialize: 1s }\n' });
  const big = 'x'.repeat(3000000);
  const answers = await Promise.all([1, 2, 3].map(() => call(valet, 'a', { big })));
  for (const answer of answers) {
    assert.equal(answer.error.code, -32603);
    assert.match(answer.error.message, /handshake|initialize/);
  }
  assert.equal((await ask(valet, 'no/such/method')).status, 404);
});

test('a child that dies at the start: its last words are in the error, discover answers 503', { timeout: 20000 }, async t => {
  const valet = await serve(t, misbehaving('stillborn'));
  const { status, error } = await ask(valet, 'server/discover');
  assert.equal(status, 503);
  assert.match(error.message, /the database is not there/);
  const again = await call(valet, 'a');
  assert.equal(again.status, 200);
  assert.match(again.error.message, /the database is not there/);
});

test('a truncated last line is never parsed', { timeout: 20000 }, async t => {
  const valet = await serve(t, misbehaving('truncated'));
  assert.equal((await call(valet, 'a')).error.data.reason, 'lost');
});

test('a message over the limit ends the session with clear words', { timeout: 30000 }, async t => {
  const valet = await serve(t, misbehaving('huge'));
  const { error } = await call(valet, 'a');
  assert.equal(error.data.reason, 'lost');
  assert.match(error.message, /longer than the limit|larger than the limit|limit of/);
});

test('no such program', { timeout: 20000 }, async t => {
  const valet = await serve(t, ['/no/such/program']);
  assert.equal((await ask(valet, 'server/discover')).status, 503);
  assert.match((await call(valet, 'a')).error.message, /no\/such\/program/);
});
