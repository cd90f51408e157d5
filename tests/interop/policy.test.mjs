// What the operator decides, shown with the official client and real servers.
import test from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { answerAll, ask, call, connect, fixture, packaged, policyFile, recorded, retry, scratch, serve, sleep, textOf, until } from './valet.mjs';

const asker = ['node', fixture('asker.mjs')];
const everythingServer = ['node', packaged('@modelcontextprotocol/server-everything/dist/index.js')];
const accept = content => ({ action: 'accept', content });
const rule = (tool, more) => `version: 1\nrules:\n  - match: { tool: ${tool} }\n${more.map(line => `    ${line}\n`).join('')}`;

for (const [action, answer] of [['decline', { action: 'decline' }], ['cancel', { action: 'cancel' }],
  ['{ answer: { action: accept, content: { sure: configured } } }', accept({ sure: 'configured' })]])
  test(`elicitation: ${action}`, { timeout: 20000 }, async t => {
    const record = join(scratch(t), 'record');
    const valet = await serve(t, asker, { policy: rule('confirm', [`elicitation: ${action}`]), env: { RECORD: record } });
    const { result } = await call(valet, 'confirm', { what: 'x' });
    assert.equal(result.resultType, 'complete');
    assert.deepEqual(recorded(record)[0].answer, answer);
  });

test('elicitation: deny, as a client without the capability would', { timeout: 20000 }, async t => {
  const record = join(scratch(t), 'record');
  const valet = await serve(t, asker, { policy: rule('confirm', ['elicitation: deny']), env: { RECORD: record } });
  assert.equal(textOf((await call(valet, 'confirm', { what: 'x' })).result), 'kept x');
  assert.match(recorded(record)[0].answer.failed, /-32601/);
});

for (const status of [400, 200])
  test(`elicitation: fail, HTTP ${status}`, { timeout: 20000 }, async t => {
    const record = join(scratch(t), 'record');
    const valet = await serve(t, asker, { policy: `http_status_for_missing_capability: ${status}\n` + rule('confirm', ['elicitation: fail']), env: { RECORD: record } });
    const answer = await call(valet, 'confirm', { what: 'x' });
    assert.equal(answer.status, status);
    assert.equal(answer.error.code, -32021);
    assert.deepEqual(answer.error.data.requiredCapabilities, { elicitation: { form: {} } });
    await until(() => recorded(record).length, 'the tool to end');
    assert.deepEqual(recorded(record)[0].answer, { action: 'cancel' });
  });

for (const face of ['stdio', 'http'])
  test(`roots and sampling answered by the policy, over ${face}`, { timeout: 30000 }, async t => {
    const client = await connect(t, face, everythingServer, { policy: 'version: 1\ndefaults:\n' +
      '  roots: { answer: [ { uri: "file:///srv/data", name: data } ] }\n' +
      '  sampling: { answer: { role: assistant, model: fixed, content: { type: text, text: configured words } } }\n' });
    assert.match(textOf(await client.callTool({ name: 'trigger-sampling-request', arguments: { prompt: 'p', maxTokens: 7 } })), /configured words/);
    assert.match(textOf(await client.callTool({ name: 'get-roots-list', arguments: {} })), /file:\/\/\/srv\/data/);
  });

test('hidden tools are not listed and not callable', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker, { policy: rule('"st*"', ['hide: true']) });
  const names = (await ask(valet, 'tools/list')).result.tools.map(tool => tool.name);
  assert.ok(names.includes('confirm') && !names.includes('stubborn'));
  assert.equal((await call(valet, 'stubborn', { ms: 1 })).error.code, -32602);
});

test('asks: never runs beside a call that works, and may not ask', { timeout: 20000 }, async t => {
  const record = join(scratch(t), 'record');
  const valet = await serve(t, asker, { policy: rule('[ plain, confirm ]', ['asks: never']) + 'upstream: { overlap: never }\n', env: { RECORD: record } });
  const slow = call(valet, 'stubborn', { ms: 2500 });
  await until(() => recorded(record).length, 'the slow tool to start');
  const start = Date.now();
  assert.equal(textOf((await call(valet, 'plain')).result), 'plain {}');
  assert.ok(Date.now() - start < 2000, 'without waiting');
  await slow;
  // Asking all the same is refused, and fails closed.
  assert.equal(textOf((await call(valet, 'confirm', { what: 'x' })).result), 'kept x');
  assert.deepEqual(recorded(record).at(-1).answer, { action: 'cancel' });
});

test('input_keys name the questions, and a fresh call may bring their answers', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker, { policy: rule('three_rounds', ['input_keys: [ first, second ]']) });
  let { result } = await call(valet, 'three_rounds');
  assert.deepEqual(Object.keys(result.inputRequests), ['first']);
  ({ result } = await call(valet, 'three_rounds', {}, { inputResponses: { first: accept({ x: '1' }), second: accept({ x: '2' }), third: accept({ x: '3' }), other: 7 } }));
  assert.deepEqual(Object.keys(result.inputRequests), ['input-3']);
  ({ result } = await retry(valet, 'three_rounds', {}, result, answerAll(result, accept({ x: '3' }))));
  assert.equal(textOf(result), '1 2 3');
});

test('a server that requires URL elicitation: a round, then the call again', { timeout: 20000 }, async t => {
  const valet = await serve(t, everythingServer);
  const tools = (await ask(valet, 'tools/list')).result.tools.map(tool => tool.name);
  assert.ok(tools.includes('trigger-url-elicitation'));
  const args = { url: 'https://example.com/login', message: 'go', errorPath: true };
  let first = (await call(valet, 'trigger-url-elicitation', args)).result;
  // The server asks for roots, too, once a session; if that came much earlier, it is a round of its own.
  if (Object.values(first.inputRequests).every(request => request.method === 'roots/list'))
    first = (await retry(valet, 'trigger-url-elicitation', args, first, answerAll(first, { roots: [] }))).result;
  const requests = Object.values(first.inputRequests).filter(request => request.params?.mode === 'url');
  assert.equal(requests.length, 1);
  assert.match(requests[0].params.url, /^https:/); // the server's own
  assert.ok(!('elicitationId' in requests[0].params));
  const declined = (await retry(valet, 'trigger-url-elicitation', args, first,
    answerAll(first, request => request.method === 'roots/list' ? { roots: [] } : { action: 'decline' }))).result;
  assert.equal(declined.isError, true);
  const without = await call(valet, 'trigger-url-elicitation', args, {}, { capabilities: { elicitation: {} } });
  assert.ok(without.error || without.result.isError);
});

test('url_hosts: others are answered cancel', { timeout: 20000 }, async t => {
  const valet = await serve(t, everythingServer, { policy: 'version: 1\ndefaults: { url_hosts: [ good.example ], roots: { answer: [] } }\n' });
  const go = url => call(valet, 'trigger-url-elicitation', { url, message: 'go' });
  assert.equal((await go('https://good.example:8443/login')).result.resultType, 'input_required');
  for (const url of ['https://evil.example/', 'https://good.example.evil.example/', 'https://good.example@evil.example/', 'https://evil.example/?good.example'])
    assert.match(textOf((await go(url)).result), /cancel/i);
});

test('check_answers: schema', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker, { policy: 'version: 1\ndefaults: { check_answers: schema }\n' });
  const { result } = await call(valet, 'confirm', { what: 'x' });
  const [key] = Object.keys(result.inputRequests);
  for (const [content, words] of [[{}, /content\.sure is missing/], [{ sure: 1 }, /content\.sure is not a string/]]) {
    const { error } = await retry(valet, 'confirm', { what: 'x' }, result, { [key]: accept(content) });
    assert.equal(error.code, -32602);
    assert.match(error.message, words);
  }
  assert.equal(textOf((await retry(valet, 'confirm', { what: 'x' }, result, { [key]: accept({ sure: 'y', more: 1 }) })).result), 'deleted x y');
});

test('rerun_hints: a tool that only reads runs again when its call was lost', { timeout: 20000 }, async t => {
  const { children } = await import('./valet.mjs');
  for (const [policy, reason] of [['version: 1\ndefaults: { rerun_hints: true }\n', undefined], ['version: 1\n', 'lost']]) {
    const valet = await serve(t, asker, { policy });
    await ask(valet, 'tools/list');
    const { result } = await call(valet, 'three_rounds');
    process.kill(children(valet.pid)[0], 'SIGKILL');
    await sleep(300);
    const again = await retry(valet, 'three_rounds', {}, result, answerAll(result, accept({ x: '1' })));
    assert.equal(again.error?.data.reason, reason);
    if (!reason) assert.equal(Object.values(again.result.inputRequests)[0].params.message, 'Question 2?');
  }
});

test('a hundred reloads under load, good and bad files mixed: no request is lost', { timeout: 60000 }, async t => {
  const path = policyFile(t, 'version: 1\n');
  const valet = await serve(t, asker, { args: ['--policy', path] });
  let stop = false, served = 0;
  const load = [1, 2, 3, 4].map(async n => {
    while (!stop) {
      const { result } = n === 1 ? await call(valet, 'confirm', { what: 'x' }) : await call(valet, 'plain', { n });
      if (n === 1) {
        const last = await retry(valet, 'confirm', { what: 'x' }, result, answerAll(result, accept({ sure: 'y' })));
        assert.equal(textOf(last.result), 'deleted x y');
      } else assert.equal(textOf(result), `plain {"n":${n}}`);
      served++;
    }
  });
  for (let i = 0; i < 100; i++) {
    writeFileSync(path, i % 3 === 2 ? 'version: 1\nlimits: { nonsense: 1 }\n' : `version: 1\ndefaults: { park: ${i + 1}m }\n`);
    valet.child.kill('SIGHUP');
    await sleep(20);
  }
  await until(() => (valet.log.match(/"event":"reload/g) ?? []).length > 20, 'the reloads');
  await until(() => served > 50, 'the calls', 30000);
  stop = true;
  await Promise.all(load);
  assert.match(valet.log, /"event":"reload-refused"[^\n]*nonsense/);
});
