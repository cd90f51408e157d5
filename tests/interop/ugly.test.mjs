// HTTP servers as they are found in the wild, and many calls parked at them.
import test from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { answerAll, call, descriptors, fixture, retry, serve, sleep, textOf, until } from './valet.mjs';

async function front(t, kind, options = {}) {
  const child = spawn('node', [fixture('ugly.mjs'), kind], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  let out = '';
  child.stdout.on('data', data => { out += data; });
  await until(() => /\d+\n/.test(out), 'the server to listen');
  return serve(t, [], { ...options, args: ['--upstream', `http://127.0.0.1:${Number(out)}/mcp`] });
}

const accept = content => ({ action: 'accept', content });

async function works(valet, n = 'n') {
  assert.equal(textOf((await call(valet, 'plain', { n })).result), `plain ${n}`);
  const { result } = await call(valet, 'ask', { n });
  assert.equal(result?.resultType, 'input_required');
  const last = await retry(valet, 'ask', { n }, result, answerAll(result, accept({ a: 1 })));
  assert.equal(textOf(last.result), `${n} {"action":"accept","content":{"a":1}}`);
}

for (const kind of ['', 'no-get', 'get-text', 'late-get', 'one-get', 'no-delete', '200-null', '204', '200-text', 'split'])
  test(`a server that is ${kind || 'well-behaved'}`, { timeout: 30000 }, async t => works(await front(t, kind)));

test('a server that answers nothing while a GET is open is used without', { timeout: 60000 }, async t => {
  const valet = await front(t, 'blocking-get');
  await works(valet);
  assert.match(valet.log, /does not answer while its GET stream is open/);
  const start = Date.now();
  assert.equal(textOf((await call(valet, 'plain', { n: 1 }, {}, { headers: { authorization: 'Bearer other' } })).result), 'plain 1');
  assert.ok(Date.now() - start < 3000, 'the next session does without from the start');
});

for (const kind of ['gone-404', 'gone-400', 'gone-200'])
  test(`a session that is ${kind}: what was parked is lost, then a new session`, { timeout: 30000 }, async t => {
    const valet = await front(t, kind);
    const { result } = await call(valet, 'ask', { n: 'x' });
    const first = await call(valet, 'plain', { n: 1 });
    // A status says that the server has not begun with the call, which goes to the new session then.
    if (kind === 'gone-200') assert.equal(first.error.code, -32001);
    else assert.equal(textOf(first.result), 'plain 1');
    const lost = await retry(valet, 'ask', { n: 'x' }, result, answerAll(result, accept({})));
    assert.equal(lost.error.data.reason, 'lost');
    assert.equal(textOf((await call(valet, 'plain', { n: 2 })).result), 'plain 2');
  });

for (const kind of ['gone-401', 'gone-503'])
  test(`a request that is answered with ${kind.slice(5)}: an error that says so`, { timeout: 30000 }, async t => {
    const valet = await front(t, kind);
    assert.match((await call(valet, 'plain', { n: 1 })).error.message, new RegExp(`HTTP ${kind.slice(5)}`));
  });

test('an answer that the server refuses to take is lost, the session lives', { timeout: 30000 }, async t => {
  const valet = await front(t, 'refuses-answers');
  const { result } = await call(valet, 'sample', { n: 'x' });
  const last = await retry(valet, 'sample', { n: 'x' }, result, answerAll(result, { role: 'assistant', model: 'm', content: { type: 'text', text: 't' } }));
  assert.equal(textOf(last.result), 'not answered');
  assert.equal(textOf((await call(valet, 'plain', { n: 2 })).result), 'plain 2');
});

test('a thousand calls parked at once, all answered; then a thousand abandoned', { timeout: 120000 }, async t => {
  const valet = await front(t, '', { policy: 'version: 1\nlimits: { parked_per_principal: 2000, server_requests: 2000, connections_per_address: 2000 }\n' +
    'defaults: { park: 60s }\ndeadlines: { idle_session: 1s, idle_connection: 1s }\nrules:\n  - match: { tool: sample }\n    park: 8s\n' });
  const many = async (count, one) => {
    let next = 0;
    await Promise.all([...Array(32)].map(async () => { while (next < count) await one(next++); }));
  };
  await works(valet);
  await sleep(2500);
  const before = descriptors(valet.pid);
  const parked = [];
  await many(1000, async n => { parked.push({ n: String(n), result: (await call(valet, 'ask', { n: String(n) })).result }); });
  assert.equal(new Set(parked.map(({ result }) => result.requestState)).size, 1000);
  await many(1000, async i => {
    const { n, result } = parked[i];
    assert.equal(Object.values(result.inputRequests)[0].params.message, n);
    const last = await retry(valet, 'ask', { n }, result, answerAll(result, accept({ n })));
    assert.equal(textOf(last.result), `${n} {"action":"accept","content":{"n":"${n}"}}`);
  });
  await many(1000, async n => assert.equal((await call(valet, 'sample', { n: String(n) })).result.resultType, 'input_required'));
  await until(() => /"event":"session-closed"[^\n]*idle[^\n]*\n(?![\s\S]*call-sent)/.test(valet.log), 'the session to end', 40000);
  await sleep(1500);
  // 256 idle ones, and those that were handed back in the same moment as others.
  assert.ok(descriptors(valet.pid) <= before + 320, `descriptors ${before} → ${descriptors(valet.pid)}: only reusable connections may be open`);
  valet.child.kill('SIGTERM');
  assert.deepEqual(await valet.exited, { code: 0, signal: null });
});
