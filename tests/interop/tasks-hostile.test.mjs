// Tasks under attack: ids that are another's, altered or no ids; answers that nobody asked for, twice or in a race; ends in a
// race; clients, servers and policies that change under them.
import test from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ask, children, everything, fixture, meta, post, program, recorded, scratch, serve, sleep, until } from './valet.mjs';

const extension = 'io.modelcontextprotocol/tasks';
const declared = { ...everything, extensions: { [extension]: {} } };
const silent = { extensions: { [extension]: {} } }; // is never asked, so its calls run side by side
const policy = (more = '', limits = '') => `version: 1\ndefaults: { task_after: 0s${more} }\nupstream: { overlap: 0s }\n${limits}`;
const methods = ['tasks/get', 'tasks/update', 'tasks/cancel'];
const as = name => ({ authorization: `Bearer ${name}` });
const accept = content => ({ action: 'accept', content });

// A legacy server in front of which the tests stand, by its transport; each has a tool that asks whether to delete `what`.
const servers = {
  stdio: { tool: 'confirm', start: (t, options) => serve(t, [process.execPath, fixture('asker.mjs')], options) },
  http: {
    tool: 'on_post', start: async (t, options) => {
      const server = spawn(process.execPath, [fixture('http_asker.mjs')], { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, ...options.env } });
      t.after(() => server.kill('SIGKILL'));
      let out = '';
      server.stdout.on('data', data => { out += data; });
      await until(() => /^\d+\n/.test(out), 'the server');
      const valet = await serve(t, [], { ...options, args: ['--upstream', `http://127.0.0.1:${out.trim()}/mcp`] });
      return Object.assign(valet, { server });
    },
  },
};

const make = async (valet, name, args, headers = as('mine'), capabilities = declared) => {
  const { result } = await ask(valet, 'tools/call', { name, arguments: args }, { capabilities, headers });
  assert.equal(result?.resultType, 'task', JSON.stringify(result));
  return result.taskId;
};
const on = (valet, method, taskId, more = {}, headers = as('mine'), capabilities = declared) =>
  ask(valet, method, { taskId, ...more }, { capabilities, headers: { 'mcp-name': taskId, ...headers } });
const get = async (...args) => (await on(args[0], 'tasks/get', args[1], {}, args[2])).result;
const reaches = (valet, id, status, headers) =>
  until(async () => { const task = await get(valet, id, headers); assert.ok(task, 'the task is gone'); return task.status === status && task; }, status);
const update = (valet, id, inputResponses, headers) => on(valet, 'tasks/update', id, { inputResponses }, headers);
const acknowledged = ({ status, result }) => assert.deepEqual([status, Object.keys(result ?? {}).sort()], [200, ['_meta', 'resultType']]);

// A request whose params are these bytes. Gives status and text, which hold nothing that differs from one to the next.
async function bare(valet, method, params, name, headers = as('mine')) {
  const body = `{"jsonrpc":"2.0","id":7,"method":"${method}","params":{${params},"inputResponses":{"input-1":{"action":"accept"}},"_meta":${JSON.stringify(meta(declared))}}}`;
  const { status, headers: { date, ...others }, text } = await post(valet, body, { 'mcp-protocol-version': '2026-07-28', 'mcp-method': method, 'mcp-name': name, ...headers });
  return { status, others, text };
}

for (const [kind, { tool, start }] of Object.entries(servers)) {
  test(`${kind}: whatever is not one's own id is unknown, to the byte`, { timeout: 60000 }, async t => {
    const valet = await start(t, { policy: policy() });
    const id = await make(valet, tool, { what: 'it' });
    await reaches(valet, id, 'input_required');
    const one = id[3] === '0' ? '1' : '0';
    const wrong = { altered: id.slice(0, 3) + one + id.slice(4), 'in capitals': id.replace(/[a-f]/, c => c.toUpperCase()), longer: id + '0', shorter: id.slice(0, -1),
      'with a dash': `${id.slice(0, 8)}-${id.slice(8)}`, nothing: '', 'a path': `../${id}`, long: 'a'.repeat(8000), 'two ids': id + id };
    for (const method of methods) {
      const unknown = await bare(valet, method, `"taskId":"${'0'.repeat(32)}"`, '0'.repeat(32));
      assert.equal(JSON.parse(unknown.text).error.code, -32602);
      assert.deepEqual(await bare(valet, method, `"taskId":"${id}"`, id, as('other')), unknown);
      assert.deepEqual(await bare(valet, method, `"taskId":"${id}"`, id, {}), unknown);
      for (const [what, text] of Object.entries(wrong))
        assert.deepEqual(await bare(valet, method, `"taskId":"${text}"`, text), unknown, what);
      // Not one id: refused as a request, whoever asks.
      for (const params of ['"taskId":7', '"taskId":null', '"taskId":{}', `"taskId":["${id}"]`, '"taskId":true', '"task":"x"', `"taskId":"${id}","taskId":"${id}"`,
        `"taskId":"${'0'.repeat(32)}","task\\u0049d":"${id}"`]) {
        const refused = await bare(valet, method, params, id);
        assert.deepEqual([refused.status, JSON.parse(refused.text).error.code], [400, -32602], params);
        assert.deepEqual(await bare(valet, method, params, id, as('other')), refused, params);
      }
    }
    const nul = await bare(valet, 'tasks/get', '"taskId":"\\u0000"', '=?base64?AA==?=');
    assert.equal(JSON.parse(nul.text).error.code, -32602);
    // Nothing of all that reached the task, and its id may be spelled in any way that JSON has.
    assert.equal((await get(valet, id)).status, 'input_required');
    const spelled = await bare(valet, 'tasks/get', `"taskId":"\\u00${id.charCodeAt(0).toString(16)}${id.slice(1)}"`, id);
    assert.equal(JSON.parse(spelled.text).result.taskId, id);
  });

  test(`${kind}: answers to what was not asked, has been answered, or is another task's`, { timeout: 60000 }, async t => {
    const record = join(scratch(t), 'record');
    const valet = await start(t, { policy: policy(', check_answers: schema'), env: { RECORD: record } });
    const a = await make(valet, tool, { what: 'first' });
    acknowledged(await update(valet, a, { 'input-1': accept({ sure: 'early' }), 'input-2': accept({ sure: 'early' }) }));
    const [key] = Object.keys((await reaches(valet, a, 'input_required')).inputRequests);
    const b = await make(valet, tool, { what: 'second' }, as('other'));
    await reaches(valet, b, 'input_required', as('other'));
    for (const bad of [null, 1, 'accept', [], {}, { action: 'maybe' }, { action: 1 }, accept({}), accept({ sure: 1 }), accept({ sure: ['yes'] }), accept('yes'), accept(null)])
      assert.equal((await update(valet, a, { [key]: bad })).error?.code, -32602, JSON.stringify(bad));
    for (const bad of [null, 1, 'x', []]) assert.equal((await update(valet, a, bad)).error?.code, -32602, JSON.stringify(bad));
    assert.equal((await bare(valet, 'tasks/update', `"taskId":"${a}"`, a, as('mine'))).status, 200); // lacks `sure`
    const twice = await post(valet, `{"jsonrpc":"2.0","id":7,"method":"tasks/update","params":{"taskId":"${a}","inputResponses":{"${key}":{"action":"decline"},"${key}":{"action":"accept","content":{"sure":"x"}}},"_meta":${JSON.stringify(meta(declared))}}}`,
      { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tasks/update', 'mcp-name': a, ...as('mine') });
    assert.equal(JSON.parse(twice.text).error.code, -32602);
    acknowledged(await update(valet, a, JSON.parse(`{"__proto__":{"action":"accept"},"constructor":{},"input-0":{},"input-01":{},"INPUT-1":{},"input-99":{"action":"accept"}}`)));
    assert.deepEqual(Object.keys((await get(valet, a)).inputRequests), [key]);
    // Twice at once: one of them counts.
    for (const response of await Promise.all(['one', 'two', 'three'].map(sure => update(valet, a, { [key]: accept({ sure }) })))) acknowledged(response);
    const done = await reaches(valet, a, 'completed');
    assert.match(done.result.content[0].text, /^deleted first (one|two|three)$/);
    acknowledged(await update(valet, a, { [key]: accept({ sure: 'late' }) }));
    acknowledged(await on(valet, 'tasks/cancel', a));
    assert.deepEqual((await get(valet, a)).result, done.result);
    // What went to one task left the other alone.
    assert.equal((await get(valet, b, as('other'))).status, 'input_required');
    acknowledged(await update(valet, b, { [key]: { action: 'decline' } }, as('other')));
    assert.equal((await reaches(valet, b, 'completed', as('other'))).result.content[0].text, 'kept second');
    const answers = recorded(record).filter(({ answer }) => answer);
    assert.deepEqual(answers.map(({ what, answer }) => [what, answer.action]), [['first', 'accept'], ['second', 'decline']]);
    for (const secret of [a, b, 'early', 'late', 'deleted', '"sure"']) assert.ok(!valet.log.includes(secret), `the log tells ${secret}`);
  });

  test(`${kind}: answers, cancellations and polls in races`, { timeout: 120000 }, async t => {
    const record = join(scratch(t), 'record');
    const valet = await start(t, { policy: policy(), env: { RECORD: record } });
    const ends = { completed: 0, cancelled: 0 };
    for (let round = 0; round < 8; round++) {
      const id = await make(valet, tool, { what: `n${round}` });
      const { inputRequests: { ...questions } } = await reaches(valet, id, 'input_required');
      const [key] = Object.keys(questions);
      const answer = () => update(valet, id, { [key]: accept({ sure: `s${round}` }) });
      const cancel = () => on(valet, 'tasks/cancel', id);
      const poll = () => on(valet, 'tasks/get', id);
      const storm = [answer, poll, answer, cancel, poll, cancel, answer, poll];
      storm.push(...storm.splice(0, round % storm.length));
      const told = (await Promise.all(storm.map(one => one()))).map(({ status, result }) => { assert.equal(status, 200); return result; });
      const end = await until(async () => { const task = await get(valet, id); return ['completed', 'cancelled'].includes(task.status) && task; }, 'an end');
      ends[end.status]++;
      for (const { status } of told) if (['completed', 'cancelled', 'failed'].includes(status)) assert.equal(status, end.status, 'an end does not change');
      assert.equal('result' in end, end.status === 'completed');
      assert.equal('inputRequests' in end || 'error' in end, false);
      await cancel(); await answer(); await sleep(5);
      assert.equal((await get(valet, id)).status, end.status);
    }
    // Each was answered once, whatever came how often.
    const said = recorded(record).filter(({ answer }) => answer?.action).map(({ what }) => what);
    assert.equal(new Set(said).size, said.length, said.join());
    assert.equal(ends.completed + ends.cancelled, 8);
  });
}

test('a client that goes away, before its task and after', { timeout: 60000 }, async t => {
  const record = join(scratch(t), 'record');
  const valet = await serve(t, [process.execPath, fixture('asker.mjs')], { policy: `version: 1\ndefaults: { task_after: 1s, park: 1500ms }\ndeadlines: { redeliver: 200ms }\n`, env: { RECORD: record } });
  const events = name => recorded(record).filter(({ event }) => event === name).length;
  const gone = new AbortController();
  const first = ask(valet, 'tools/call', { name: 'stubborn', arguments: { ms: 20000 } }, { capabilities: silent, headers: as('mine'), signal: gone.signal }).catch(() => {});
  await until(() => events('stubborn-started') === 1, 'the start');
  gone.abort();
  await first;
  await until(() => events('stubborn-cancelled') === 1, 'the cancellation');
  const id = await make(valet, 'stubborn', { ms: 1500 }, as('mine'), silent);
  await until(() => events('stubborn-ended') === 1, 'the end');
  await sleep(2000);
  assert.equal((await on(valet, 'tasks/get', id)).error.data.reason, 'unknown_task');
});

test('one client with more tasks than it may have; another gets its own', { timeout: 120000 }, async t => {
  const valet = await serve(t, [process.execPath, fixture('asker.mjs')], { policy: policy('', 'limits: { parked_per_principal: 20, waiting: 1000, kept: 100 }\n') });
  const greedy = await Promise.all(Array.from({ length: 200 }, () =>
    ask(valet, 'tools/call', { name: 'stubborn', arguments: { ms: 1000 } }, { capabilities: silent, headers: as('mine') })));
  const tasks = greedy.filter(({ result }) => result.resultType === 'task');
  assert.equal(tasks.length, 20);
  assert.equal(greedy.filter(({ result }) => result.resultType === 'complete').length, 180);
  const other = await make(valet, 'stubborn', { ms: 1 }, as('other'), silent);
  assert.equal((await reaches(valet, other, 'completed', as('other'))).result.content[0].text, 'done anyway');
  // Told ends take no place: it makes thousands one after another, and pushes out no end of the other's.
  for (const { result } of tasks) await reaches(valet, result.taskId, 'completed');
  const untold = await make(valet, 'stubborn', { ms: 1 }, as('other'), silent);
  for (let i = 0; i < 100; i++) {
    const ids = await Promise.all(Array.from({ length: 20 }, () => make(valet, 'stubborn', { ms: 0 }, as('mine'), silent)));
    await Promise.all(ids.map(id => reaches(valet, id, 'completed')));
  }
  assert.equal((await get(valet, untold, as('other'))).status, 'completed');
});

test('who does not declare the extension as it must be gets no task', { timeout: 60000 }, async t => {
  const valet = await serve(t, [process.execPath, fixture('asker.mjs')], { policy: policy() });
  const id = await make(valet, 'plain', {});
  for (const capabilities of [{}, { extensions: {} }, { extensions: null }, { extensions: [extension] }, { extensions: { [extension]: null } }, { extensions: { [extension]: true } },
    { extensions: { [extension]: [] } }, { extensions: { [extension.toUpperCase()]: {} } }, { extensions: { [`${extension}/x`]: {} } }, { tasks: { requests: { tools: { call: {} } } } },
    { experimental: { [extension]: {} } }, { [extension]: {} }]) {
    const { result } = await ask(valet, 'tools/call', { name: 'stubborn', arguments: { ms: 100 }, task: { ttl: 60000 } }, { capabilities, headers: as('mine') });
    assert.equal(result.resultType, 'complete', JSON.stringify(capabilities));
    for (const method of methods) {
      const refused = await on(valet, method, id, { inputResponses: {} }, as('mine'), capabilities);
      assert.deepEqual([refused.status, refused.error.code], [400, -32021]);
      assert.deepEqual((await on(valet, method, '0'.repeat(32), { inputResponses: {} }, as('mine'), capabilities)).error, refused.error);
    }
  }
  for (const method of ['tasks/result', 'tasks/list', 'tasks/', 'tasks/GET']) {
    const none = await on(valet, method, id);
    assert.deepEqual([none.status, none.error.code], [404, -32601], method);
  }
});

test('a legacy client has no extension for tasks, whatever it says', { timeout: 30000 }, async t => {
  const valet = await serve(t, [process.execPath, fixture('modern_raw.mjs')], { policy: 'version: 1\nupstream: { era: modern }\n' });
  const capabilities = { sampling: {}, tasks: { list: {} }, extensions: { 'com.example/one': {}, [extension]: {}, 'com.example/two': { a: [1] } } };
  const initialize = await post(valet, JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities, clientInfo: { name: 'old', version: '1' } } })
    .replace(`"${extension}"`, `"${extension.replace('t', '\\u0074')}"`));
  const headers = { 'mcp-session-id': initialize.headers['mcp-session-id'], 'mcp-protocol-version': '2025-11-25' };
  const { text } = await post(valet, JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'declared', arguments: {} } }), headers);
  assert.deepEqual(JSON.parse(JSON.parse(text).result.content[0].text), { sampling: {}, extensions: { 'com.example/one': {}, 'com.example/two': { a: [1] } } });
});

test('the policy changes, the server dies, and the process ends under tasks', { timeout: 60000 }, async t => {
  const file = join(scratch(t), 'policy.yaml');
  writeFileSync(file, policy());
  const valet = await serve(t, [process.execPath, fixture('asker.mjs')], { args: ['--policy', file] });
  let reloads = 0;
  const change = async text => {
    writeFileSync(file, text);
    valet.child.kill('SIGHUP');
    reloads++;
    await until(() => (valet.log.match(/"event":"reloaded"/g) ?? []).length === reloads, 'the reload');
  };
  const id = await make(valet, 'confirm', { what: 'it' });
  const { inputRequests } = await reaches(valet, id, 'input_required');
  // No tasks any more, and no such tool: what is under way goes on, and a stranger does not learn that it is.
  await change('version: 1\nrules:\n  - match: { tool: "confirm" }\n    hide: true\n');
  const strangers = await on(valet, 'tasks/get', '0'.repeat(32), {}, as('other'));
  assert.equal((await ask(valet, 'server/discover', {}, { capabilities: declared, headers: as('mine') })).result.capabilities.extensions, undefined);
  assert.equal((await ask(valet, 'tools/call', { name: 'plain', arguments: {} }, { capabilities: declared, headers: as('mine') })).result.resultType, 'complete');
  assert.equal((await get(valet, id)).status, 'input_required');
  // Clients are told apart in another way: nobody is who it was.
  await change('version: 1\nprincipal: header:x-user\n');
  assert.equal((await on(valet, 'tasks/get', id, {}, { ...as('mine'), 'x-user': 'mine' })).error.data.reason, 'unknown_task');
  await change(policy());
  acknowledged(await update(valet, id, { [Object.keys(inputRequests)[0]]: accept({ sure: 'yes' }) }));
  assert.equal((await reaches(valet, id, 'completed')).result.content[0].text, 'deleted it yes');
  // The server dies under one that works and one that asks.
  const asks = await make(valet, 'confirm', { what: 'b' });
  await reaches(valet, asks, 'input_required');
  const works = await make(valet, 'stubborn', { ms: 30000 });
  for (const pid of children(valet.pid)) process.kill(pid, 'SIGKILL');
  for (const lost of [asks, works]) {
    const { error } = await reaches(valet, lost, 'failed');
    assert.equal(error.data.reason, 'lost');
  }
  acknowledged(await update(valet, asks, { 'input-1': accept({ sure: 'late' }) }));
  // A stranger is told the same with tasks about and without.
  await change('version: 1\ndeadlines: { shutdown: 300ms }\n');
  const later = await on(valet, 'tasks/get', '0'.repeat(32), {}, as('other'));
  assert.deepEqual([later.status, later.error], [strangers.status, strangers.error]);
  await change(policy('', 'deadlines: { shutdown: 300ms }\n'));
  await make(valet, 'stubborn', { ms: 30000 });
  await reaches(valet, await make(valet, 'confirm', { what: 'c' }, as('other')), 'input_required', as('other'));
  valet.child.kill('SIGTERM');
  assert.deepEqual(await valet.exited, { code: 0, signal: null });
});

test('over stdio', { timeout: 60000 }, async t => {
  const file = join(scratch(t), 'policy.yaml');
  writeFileSync(file, policy('', 'deadlines: { shutdown: 300ms }\n'));
  const valet = spawn(program, ['--policy', file, '--log-level', 'debug', '--', process.execPath, fixture('asker.mjs')], { stdio: ['pipe', 'pipe', 'pipe'] });
  t.after(() => valet.kill('SIGKILL'));
  let out = '', log = '', next = 1;
  valet.stdout.on('data', data => { out += data; });
  valet.stderr.on('data', data => { log += data; });
  const lines = () => out.split('\n').filter(Boolean).map(line => JSON.parse(line));
  const say = (method, params, id = next++) => {
    valet.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta: meta(declared) } })}\n`);
    return until(() => lines().find(message => message.id === id), method);
  };
  const { result: { taskId, resultType } } = await say('tools/call', { name: 'confirm', arguments: { what: 'it' } });
  assert.equal(resultType, 'task');
  // Its request is answered: its id cancels nothing.
  valet.stdin.write('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}\n');
  const task = await until(async () => { const { result } = await say('tasks/get', { taskId }); return result.status === 'input_required' && result; }, 'the question');
  for (const bad of [7, null, {}, [taskId], taskId.toUpperCase(), `${taskId} `, 'a'.repeat(1 << 20)])
    for (const method of methods) assert.equal((await say(method, { taskId: bad, inputResponses: {} })).error.code, -32602);
  const [key] = Object.keys(task.inputRequests);
  const inputResponses = { [key]: accept({ sure: 'secret' }) };
  await Promise.all([say('tasks/update', { taskId, inputResponses }), say('tasks/update', { taskId, inputResponses }), say('tasks/get', { taskId })]);
  const done = await until(async () => { const { result } = await say('tasks/get', { taskId }); return result.status === 'completed' && result; }, 'the end');
  assert.equal(done.result.content[0].text, 'deleted it secret');
  const left = await say('tools/call', { name: 'stubborn', arguments: { ms: 60000 } });
  assert.equal(left.result.resultType, 'task');
  valet.stdin.end();
  await until(() => valet.exitCode !== null, 'the end of the process', 20000);
  assert.equal(valet.exitCode, 0);
  for (const secret of [taskId, left.result.taskId, 'secret']) assert.ok(!log.includes(secret), `the log tells ${secret}`);
});
