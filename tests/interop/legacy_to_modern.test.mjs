// A legacy client with a modern server: the server's input requests become server requests, and the retry is not the client's.
import test from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport as LegacyStdio } from '@modelcontextprotocol/sdk/client/stdio.js';
import { Client as LegacyClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as LegacyHttp } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, ElicitRequestSchema, EmptyResultSchema, ListRootsRequestSchema, LoggingMessageNotificationSchema, ResourceUpdatedNotificationSchema, ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { children, everything as modernCapabilities, fixture, makeClient, policyFile, post, program, serve, textOf, until } from './valet.mjs';

const policy = 'version: 1\nupstream: { era: modern }\n';
const modern = ['node', fixture('modern.mjs')];
const everything = { elicitation: {}, sampling: {}, roots: { listChanged: true } };

// `asked` is what the client was asked, `refuses` what it answers with an error.
function legacyClient({ name = 'old', capabilities = everything, refuses = [] } = {}) {
  const client = new LegacyClient({ name, version: '1' }, { capabilities });
  client.asked = [];
  const handle = (schema, kind, answer) => capabilities[kind] && client.setRequestHandler(schema, async (request, extra) => {
    client.asked.push(request.method);
    if (refuses.includes(kind)) throw new Error('no');
    if (client.waits) return client.waits(extra);
    return answer(request.params);
  });
  handle(ElicitRequestSchema, 'elicitation', () => ({ action: 'accept', content: { sure: name } }));
  handle(CreateMessageRequestSchema, 'sampling', params => ({ role: 'assistant', model: 'm', content: { type: 'text', text: `sampled ${params.messages[0].content.text}` } }));
  handle(ListRootsRequestSchema, 'roots', () => ({ roots: [{ uri: `file:///srv/${name}` }] }));
  return client;
}

async function startHttp(t, path = modern[1]) {
  const child = spawn(modern[0], [path, 'http'], { stdio: ['ignore', 'pipe', 'inherit'] });
  let out = '';
  child.stdout.on('data', data => { out += data; });
  t.after(() => child.kill('SIGKILL'));
  return `http://127.0.0.1:${await until(() => /^(\d+)\n/m.exec(out)?.[1], 'the server to listen')}/`;
}

async function connectHttp(t, valet, options = {}) {
  const client = legacyClient(options);
  client.http = new LegacyHttp(new URL(valet.url));
  await client.connect(client.http);
  t.after(() => client.close());
  return client;
}

async function connectStdio(t, options = {}) {
  const client = legacyClient(options);
  const args = ['--policy', policyFile(t, options.policy ?? policy), '--log-level', 'error', ...(options.args ?? ['--', ...modern])];
  await client.connect(new LegacyStdio({ command: program, args, stderr: 'inherit' }));
  t.after(() => client.close());
  return client;
}

const use = async (client, name, args = {}, options = undefined) => textOf(await client.callTool({ name, arguments: args }, undefined, options));

async function exercise(client, name) {
  assert.equal(client.getServerVersion().name, 'modern');
  assert.ok(client.getServerCapabilities().tools);
  await client.ping();
  const list = await client.listTools();
  assert.ok(list.tools.some(tool => tool.name === 'confirm'));
  assert.ok(!('resultType' in list || 'ttlMs' in list || 'cacheScope' in list));
  assert.equal(await use(client, 'plain', { a: 1 }), 'plain {"a":1}');
  assert.equal(await use(client, 'confirm', { what: 'x' }), `deleted x ${name}`);
  assert.equal(await use(client, 'sample', { prompt: 'words' }), 'm: sampled words');
  assert.equal(await use(client, 'roots'), `file:///srv/${name}`);
  assert.equal(await use(client, 'many', { rounds: 3 }), '3 a "key",b,c');
  const progress = [];
  assert.equal(await use(client, 'steps', {}, { onprogress: p => progress.push(p.progress) }), 'stepped');
  assert.deepEqual(progress, [1, 2, 3]);
}

for (const upstream of ['stdio', 'http']) {
  test(`a v1 client over stdio, a modern server over ${upstream}`, { timeout: 30000 }, async t => {
    const args = upstream === 'stdio' ? undefined : ['--upstream', await startHttp(t)];
    await exercise(await connectStdio(t, { args }), 'old');
  });

  test(`v1 clients over HTTP and a modern one at the same address, a modern server over ${upstream}`, { timeout: 30000 }, async t => {
    const valet = await serve(t, upstream === 'stdio' ? modern : [], { policy, args: upstream === 'stdio' ? [] : ['--upstream', await startHttp(t)] });
    const client = makeClient(modernCapabilities, { 'elicitation/create': async () => ({ action: 'accept', content: { sure: 'new' } }) });
    await client.connect(new StreamableHTTPClientTransport(new URL(valet.url)));
    t.after(() => client.close());
    const [one, two] = [await connectHttp(t, valet, { name: 'one' }), await connectHttp(t, valet, { name: 'two' })];
    assert.match(one.http.sessionId, /^[0-9a-f]{32}$/);
    assert.notEqual(one.http.sessionId, two.http.sessionId);
    await Promise.all([exercise(one, 'one'), exercise(two, 'two')]);
    for (let i = 0; i < 5; i++) {
      const [a, b, c] = await Promise.all([one, two, client].map(each => each.callTool({ name: 'confirm', arguments: { what: 'x' } })));
      assert.deepEqual([a, b, c].map(textOf), ['deleted x one', 'deleted x two', 'deleted x new']);
    }
    await one.http.terminateSession();
    const list = JSON.stringify({ jsonrpc: '2.0', id: 9, method: 'tools/list' });
    assert.equal((await post(valet, list, { 'mcp-session-id': one.http.sessionId ?? '0'.repeat(32) })).status, 404);
  });
}

test('arguments are mirrored in headers where the listed tool asks for that', { timeout: 30000 }, async t => {
  const valet = await serve(t, [], { policy, args: ['--upstream', await startHttp(t, fixture('modern_mirrors.mjs'))] });
  const client = await connectHttp(t, valet, { name: 'old' });
  await client.listTools();
  for (const args of [{ region: 'us-west1' }, { region: 'Köln\n', at: { n: -7 }, flag: false }, { region: ' padded ' }, { region: '' }, { region: '=?base64?literal?=' }, {}])
    assert.deepEqual(JSON.parse(await use(client, 'mirrors', args)), args);
  assert.deepEqual(JSON.parse(await use(client, 'mirrors', { region: 'eu', ask: true })), { region: 'eu', ask: true });
  await Promise.all([...Array(20).keys()].map(async n => assert.deepEqual(JSON.parse(await use(client, 'mirrors', { region: `r${n}` })), { region: `r${n}` })));
});

test('era: auto finds out before the legacy client is answered', { timeout: 30000 }, async t => {
  await exercise(await connectStdio(t, { policy: 'version: 1\nupstream: { era: auto }\n' }), 'old');
});

test('every revision is agreed to, and another one is answered by the newest', { timeout: 30000 }, async t => {
  const valet = await serve(t, modern, { policy });
  for (const [asked, agreed] of [['2024-11-05'], ['2025-03-26'], ['2025-06-18'], ['2025-11-25'], ['2023-01-01', '2025-11-25']]) {
    const { status, text } = await post(valet, JSON.stringify({ jsonrpc: '2.0', id: 'i', method: 'initialize', params: { protocolVersion: asked, capabilities: {}, clientInfo: { name: 'raw', version: '1' } } }));
    assert.equal(status, 200, text);
    const { id, result } = JSON.parse(text);
    assert.equal(id, 'i');
    assert.deepEqual(result, { protocolVersion: agreed ?? asked, capabilities: { logging: {}, resources: { subscribe: true }, tools: { listChanged: true } }, serverInfo: { name: 'modern', version: '1' } });
  }
});

test('what the client did not declare is not asked', { timeout: 30000 }, async t => {
  const client = await connectStdio(t, { capabilities: { roots: {} } });
  await assert.rejects(use(client, 'confirm', { what: 'x' }));
  assert.equal(await use(client, 'roots'), 'file:///srv/old');
  assert.deepEqual(client.asked, ['roots/list']);
});

test('an error of the client cancels an elicitation, and fails a call that needs sampling or roots', { timeout: 30000 }, async t => {
  const client = await connectStdio(t, { refuses: ['elicitation', 'sampling', 'roots'] });
  assert.equal(await use(client, 'confirm', { what: 'x' }), 'kept x');
  await assert.rejects(use(client, 'sample', { prompt: 'p' }), /did not answer the sampling request/);
  await assert.rejects(use(client, 'roots'), /did not list its roots/);
  await assert.rejects(use(client, 'many', { rounds: 1 }), /did not/);
  assert.equal(await use(client, 'plain'), 'plain {}');
});

test('calls wait side by side, as long as the policy lets them, and for as many rounds', { timeout: 30000 }, async t => {
  const client = await connectStdio(t, { policy: policy + 'defaults: { park: 400ms, rounds: 2 }\n' });
  await assert.rejects(use(client, 'many', { rounds: 3 }), /rounds/);
  const withdrawn = [];
  client.waits = extra => new Promise(() => extra.signal.addEventListener('abort', () => withdrawn.push(extra.requestId)));
  const [confirm, sample] = await Promise.allSettled([use(client, 'confirm', { what: 'x' }), use(client, 'sample', { prompt: 'p' })]);
  assert.equal(confirm.value, 'kept x');
  assert.match(sample.reason.message, /in time/);
  await until(() => withdrawn.length === 2, 'the questions to be withdrawn');
});

test('a cancelled call withdraws its questions', { timeout: 30000 }, async t => {
  const client = await connectStdio(t);
  const withdrawn = [];
  client.waits = extra => new Promise(() => extra.signal.addEventListener('abort', () => withdrawn.push(extra.requestId)));
  const controller = new AbortController();
  const pending = use(client, 'many', { rounds: 1 }, { signal: controller.signal });
  await until(() => client.asked.length === 3, 'the questions');
  controller.abort('enough');
  await assert.rejects(pending);
  await until(() => withdrawn.length === 3, 'the questions to be withdrawn');
  client.waits = undefined;
  assert.equal(await use(client, 'confirm', { what: 'x' }), 'deleted x old');
});

test('what the server hears of the client, and the log level', { timeout: 30000 }, async t => {
  for (const client of [await connectStdio(t), await connectHttp(t, await serve(t, [], { policy, args: ['--upstream', await startHttp(t)] }))]) {
    const seen = [];
    client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => { seen.push(params.level); });
    const name = 'io.modelcontextprotocol/';
    const envelope = { [`${name}protocolVersion`]: '2026-07-28', [`${name}clientInfo`]: { name: 'old', version: '1' },
      [`${name}clientCapabilities`]: { ...everything, roots: {} } };
    assert.deepEqual(JSON.parse(await use(client, 'envelope')), envelope);
    assert.equal(await use(client, 'log'), 'logged');
    await client.setLoggingLevel('warning');
    await assert.rejects(client.request({ method: 'logging/setLevel', params: { level: 'loud' } }, EmptyResultSchema), /-32602/);
    assert.deepEqual(JSON.parse(await use(client, 'envelope')), { ...envelope, [`${name}logLevel`]: 'warning' });
    assert.equal(await use(client, 'log'), 'logged');
    assert.deepEqual(seen, ['warning', 'error']);
  }
});

test('the loss of the server', { timeout: 30000 }, async t => {
  const valet = await serve(t, modern, { policy });
  const client = await connectHttp(t, valet);
  client.waits = () => new Promise(() => {});
  const pending = use(client, 'confirm', { what: 'x' });
  await until(() => client.asked.length, 'the question');
  process.kill(children(valet.pid)[0], 'SIGKILL');
  await assert.rejects(pending);
  const again = await connectHttp(t, valet);
  assert.equal(await use(again, 'confirm', { what: 'x' }), 'deleted x old');
});

test('an orderly end while a question is open', { timeout: 30000 }, async t => {
  const valet = await serve(t, modern, { policy: policy + 'deadlines: { shutdown: 300ms }\n' });
  const client = await connectHttp(t, valet);
  client.waits = () => new Promise(() => {});
  const pending = use(client, 'confirm', { what: 'x' });
  await until(() => client.asked.length, 'the question');
  valet.child.kill('SIGTERM');
  await assert.rejects(pending);
  assert.deepEqual(await valet.exited, { code: 0, signal: null });
});

test('hidden names stay hidden, and legacy clients can be refused', { timeout: 30000 }, async t => {
  const client = await connectStdio(t, { policy: policy + 'rules:\n  - match: { tool: "confirm" }\n    hide: true\n' });
  assert.ok(!(await client.listTools()).tools.some(tool => tool.name === 'confirm'));
  await assert.rejects(use(client, 'confirm', { what: 'x' }), /-32602|Not found/);
  await assert.rejects(connectHttp(t, await serve(t, modern, { policy: policy + 'legacy_clients: refuse\n' })));
});

for (const upstream of ['stdio', 'http'])
  for (const face of ['stdio', 'http'])
    test(`changes reach a v1 client over ${face}, the server over ${upstream}`, { timeout: 30000 }, async t => {
      const args = upstream === 'stdio' ? ['--', ...modern] : ['--upstream', await startHttp(t)];
      const client = face === 'stdio' ? await connectStdio(t, { args }) : await connectHttp(t, await serve(t, upstream === 'stdio' ? modern : [], { policy, args: upstream === 'stdio' ? [] : args }));
      let changes = 0;
      const updated = [];
      client.setNotificationHandler(ToolListChangedNotificationSchema, () => { changes++; });
      client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => { updated.push(params.uri); });
      await until(async () => { await use(client, 'change'); return changes; }, 'the change of the list');
      await Promise.all(['file:///a', 'file:///b', 'file:///b'].map(uri => client.subscribeResource({ uri })));
      for (const uri of ['file:///c', 'file:///a', 'file:///b']) await use(client, 'touch', { uri });
      await until(() => updated.length === 2, 'the changes of the resources');
      await client.unsubscribeResource({ uri: 'file:///a' });
      const before = changes;
      for (const uri of ['file:///a', 'file:///b']) await use(client, 'touch', { uri });
      await use(client, 'change');
      await until(() => changes > before && updated.length === 3, 'the changes after that');
      assert.deepEqual(updated, ['file:///a', 'file:///b', 'file:///b']);
    });

const raw = { args: ['--', 'node', fixture('modern_raw.mjs')], capabilities: { elicitation: { form: {}, url: {} } } };

test('what is unusual: a URL, a state alone, questions and results that must not be', { timeout: 30000 }, async t => {
  const client = await connectStdio(t, raw);
  assert.equal(client.getInstructions(), 'Be raw.');
  assert.equal(client.getServerVersion().name, 'unknown');
  assert.equal(await use(client, 'url'), 'accept');
  assert.equal(await use(client, 'state'), 'again');
  await assert.rejects(use(client, 'rude'), /did not declare/);
  await assert.rejects(use(client, 'odd'), /unknown type/);
  await assert.rejects(use(client, 'empty'), /does not say for which/);
  const progress = [];
  assert.equal(await use(client, 'steps', {}, { onprogress: p => progress.push(p.progress) }), 'stepped');
  assert.deepEqual(progress, [1, 2, 3]);
});

test('payload bytes are the same', { timeout: 20000 }, async t => {
  const valet = await serve(t, ['node', fixture('modern_raw.mjs')], { policy });
  const initialize = await post(valet, JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'raw', version: '1' } } }));
  const bytes = '{"n":9223372036854775807,"d":1.0,"e":1e400,"s":"\\u0061\\/","z":-0, "z":1}';
  const { text } = await post(valet, `{"jsonrpc":"2.0","id":"\\u0031","method":"tools/call","params":{"name":"echo","arguments":${bytes}}}`, { 'mcp-session-id': initialize.headers['mcp-session-id'] });
  assert.equal(text, `{"jsonrpc":"2.0","id":"\\u0031","result":{"content":[],"structuredContent":${bytes}}}`);
});

test('a subscription that the server ends is renewed, and the client looks again', { timeout: 30000 }, async t => {
  const client = await connectStdio(t, raw);
  let changes = 0;
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => { changes++; });
  for (const expected of [1, 2]) {
    await use(client, 'hang up');
    await until(() => changes === expected, 'the change');
  }
});

test('nothing reaches the server before an initialize that can be read', { timeout: 20000 }, async t => {
  const child = spawn(program, ['--policy', policyFile(t, policy), '--log-level', 'error', ...raw.args], { stdio: ['pipe', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  let out = '';
  child.stdout.on('data', data => { out += data; });
  const ask = async (id, method, params) => {
    child.stdin.write(JSON.stringify({ jsonrpc: '2.0', id, method, params }) + '\n');
    return until(() => out.split('\n').slice(0, -1).map(line => JSON.parse(line)).find(message => message.id === id), `the answer to ${method}`);
  };
  const hello = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'raw', version: '1' } };
  assert.equal((await ask(1, 'initialize', { ...hello, capabilities: [] })).error.code, -32602);
  assert.equal((await ask(2, 'tools/call', { name: 'state' })).error.code, -32600);
  assert.equal((await ask(3, 'initialize', hello)).result.protocolVersion, '2025-06-18');
  assert.equal((await ask(4, 'initialize', hello)).error.code, -32600);
  assert.equal(textOf((await ask(5, 'tools/call', { name: 'state' })).result), 'again');
  assert.equal((await ask(6, 'tools/nothing', {})).error.code, -32601);
});

test('calls are limited', { timeout: 30000 }, async t => {
  const client = await connectStdio(t, { ...raw, policy: policy + 'limits: { parked_per_principal: 1 }\n' });
  client.waits = () => new Promise(resolve => { client.goOn = () => resolve({ action: 'decline' }); });
  const first = use(client, 'url');
  await until(() => client.asked.length, 'the question');
  await assert.rejects(use(client, 'url'), /limits\.parked_per_principal/);
  client.goOn();
  assert.equal(await first, 'decline');
  client.waits = undefined;
  assert.equal(await use(client, 'url'), 'accept');
});
