// Clients of earlier revisions at the same address as modern ones: passed to the legacy server unchanged.
import test from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import http from 'node:http';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Client as LegacyClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as LegacyStdio } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport as LegacyHttp } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema, LoggingMessageNotificationSchema, ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { alive, ask, call, children, everything, fixture, freePort, makeClient, packaged, policyFile, post, program, scratch, serve, sleep, textOf, until } from './valet.mjs';

const accept = content => ({ action: 'accept', content });
const asker = ['node', fixture('asker.mjs')];
const everythingServer = ['node', packaged('@modelcontextprotocol/server-everything/dist/index.js')];

function legacyClient(name = 'old') {
  const client = new LegacyClient({ name, version: '1' }, { capabilities: { elicitation: {}, sampling: {}, roots: {} } });
  client.setRequestHandler(ElicitRequestSchema, async request => accept({ name: `Ada of ${name}`, x: request.params.message, topic: 'tea', sure: name }));
  client.setRequestHandler(CreateMessageRequestSchema, async request => ({ role: 'assistant', model: 'm', content: { type: 'text', text: `sampled ${request.params.messages[0].content.text}` } }));
  client.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: [{ uri: `file:///srv/${name}`, name }] }));
  return client;
}

async function connectLegacy(t, valet, name) {
  const client = legacyClient(name);
  const transport = new LegacyHttp(new URL(valet.url));
  await client.connect(transport);
  client.session = transport.sessionId;
  client.http = transport;
  t.after(() => client.close());
  return client;
}

// A legacy server over HTTP, in the mode that server-everything calls it.
async function startEverything(t, mode) {
  const port = await freePort();
  const child = spawn(everythingServer[0], [everythingServer[1], mode], { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, PORT: String(port) } });
  let out = '';
  child.stdout.on('data', data => { out += data; });
  child.stderr.on('data', data => { out += data; });
  t.after(() => child.kill('SIGKILL'));
  await until(() => /(listening|running) on port (\d+)/i.test(out), 'the server to listen');
  return `http://127.0.0.1:${port}${mode === 'sse' ? '/sse' : '/mcp'}`;
}

async function exerciseEverything(client, who) {
  assert.ok((await client.listTools()).tools.length > 5);
  assert.match(textOf(await client.callTool({ name: 'echo', arguments: { message: who } })), new RegExp(who));
  assert.match(textOf(await client.callTool({ name: 'trigger-sampling-request', arguments: { prompt: 'p', maxTokens: 7 } })), /sampled/);
  assert.match(textOf(await client.callTool({ name: 'trigger-elicitation-request', arguments: {} })), /Name: Ada/);
  assert.match(textOf(await client.callTool({ name: 'get-roots-list', arguments: {} })), /file:\/\/\/srv\//);
  const progress = [];
  await client.callTool({ name: 'trigger-long-running-operation', arguments: { duration: 0.6, steps: 3 } }, undefined, { onprogress: p => progress.push(p.progress) });
  assert.ok(progress.length >= 2, 'progress arrives');
}

for (const upstream of ['stdio', 'streamableHttp', 'sse'])
  for (const face of ['stdio', 'http'])
    test(`a v1 client over ${face}, the server over ${upstream}`, { timeout: 60000 }, async t => {
      const command = upstream === 'stdio' ? everythingServer : [];
      const args = upstream === 'stdio' ? [] : ['--upstream', await startEverything(t, upstream)];
      let client;
      if (face === 'http') {
        client = await connectLegacy(t, await serve(t, command, { args }), 'old');
        assert.match(client.session, /^[0-9a-f]{32}$/);
      } else {
        client = legacyClient();
        await client.connect(new LegacyStdio({ command: program, args: [...args, '--log-level', 'error', ...(command.length ? ['--', ...command] : [])], stderr: 'inherit' }));
        t.after(() => client.close());
      }
      assert.equal(client.getServerVersion().name, 'mcp-servers/everything');
      await exerciseEverything(client, 'a legacy client');
    });

for (const upstream of ['stdio', 'streamableHttp'])
  test(`modern and legacy clients at one address, the server over ${upstream}`, { timeout: 60000 }, async t => {
    const command = upstream === 'stdio' ? everythingServer : [];
    const args = upstream === 'stdio' ? [] : ['--upstream', await startEverything(t, upstream)];
    const valet = await serve(t, command, { args });
    const modern = makeClient(everything, {
      'elicitation/create': async () => accept({ name: 'Ada' }),
      'sampling/createMessage': async () => ({ role: 'assistant', model: 'm', content: { type: 'text', text: 'sampled words' } }),
      'roots/list': async () => ({ roots: [{ uri: 'file:///srv/modern', name: 'modern' }] }),
    });
    await modern.connect(new StreamableHTTPClientTransport(new URL(valet.url)));
    t.after(() => modern.close());
    const [one, two] = [await connectLegacy(t, valet, 'one'), await connectLegacy(t, valet, 'two')];
    assert.notEqual(one.session, two.session);
    await Promise.all([one, two].map((client, i) => exerciseEverything(client, `legacy ${i}`)));
    for (let i = 0; i < 5; i++) {
      const [a, b, c] = await Promise.all([one, two, modern].map(client => client.callTool({ name: 'trigger-elicitation-request', arguments: {} })));
      assert.match(textOf(a), /Ada of one/);
      assert.match(textOf(b), /Ada of two/);
      assert.match(textOf(c), /Name: Ada\b(?! of)/);
    }
    assert.match(textOf(await two.callTool({ name: 'get-roots-list', arguments: {} })), /file:\/\/\/srv\/two/);
  });

test('a session is kept, ended, and not found', { timeout: 30000 }, async t => {
  const valet = await serve(t, asker);
  const client = await connectLegacy(t, valet, 'old');
  const pid = textOf(await client.callTool({ name: 'pid', arguments: {} }));
  assert.equal(textOf(await client.callTool({ name: 'pid', arguments: {} })), pid);
  assert.equal(textOf(await client.callTool({ name: 'three_rounds', arguments: {} })), 'Question 1? Question 2? Question 3?');
  const list = JSON.stringify({ jsonrpc: '2.0', id: 9, method: 'tools/list' });
  const strange = await post(valet, list, { 'mcp-session-id': '0'.repeat(32) });
  assert.equal(strange.status, 404);
  assert.equal(JSON.parse(strange.text).id, 9);
  assert.equal((await post(valet, list, { 'mcp-session-id': client.session })).status, 200);
  // Another principal does not reach it.
  for (const method of ['POST', 'GET', 'DELETE'])
    assert.equal((await post(valet, method === 'POST' ? list : undefined, { 'mcp-session-id': client.session, authorization: 'Bearer other' }, { method })).status, 404);
  await client.http.terminateSession();
  assert.equal((await post(valet, list, { 'mcp-session-id': client.session })).status, 404);
  await until(() => !alive(Number(pid)), 'the server to end');
});

test('a lost server ends the session, and a new one can be opened', { timeout: 30000 }, async t => {
  const valet = await serve(t, asker);
  const client = await connectLegacy(t, valet, 'old');
  const pid = Number(textOf(await client.callTool({ name: 'pid', arguments: {} })));
  const pending = client.callTool({ name: 'stubborn', arguments: { ms: 20000 } });
  await sleep(200);
  process.kill(pid, 'SIGKILL');
  await assert.rejects(pending, /server|502/i);
  await assert.rejects(client.callTool({ name: 'pid', arguments: {} }), /404|not found/i);
  const again = await connectLegacy(t, valet, 'old');
  assert.notEqual(Number(textOf(await again.callTool({ name: 'pid', arguments: {} }))), pid);
});

test('over stdio the end of the server is the end of the pipe', { timeout: 30000 }, async t => {
  const client = legacyClient();
  const transport = new LegacyStdio({ command: program, args: ['--log-level', 'error', '--', ...asker], stderr: 'inherit' });
  await client.connect(transport);
  const closed = new Promise(resolve => { client.onclose = resolve; });
  const pid = Number(textOf(await client.callTool({ name: 'pid', arguments: {} })));
  const pending = client.callTool({ name: 'stubborn', arguments: { ms: 20000 } });
  await sleep(100);
  process.kill(pid, 'SIGKILL');
  await assert.rejects(pending);
  await closed;
});

// A connection that is read event by event.
function stream(valet, method, body, headers = {}) {
  const events = [];
  const request = http.request({ host: '127.0.0.1', port: valet.port, path: '/mcp', method, agent: false,
    headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers } });
  const state = { events, request, ended: false };
  request.on('response', response => {
    state.status = response.statusCode;
    state.headers = response.headers;
    let text = '';
    response.setEncoding('utf8');
    response.on('data', data => {
      text += data;
      for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
        const lines = text.slice(0, end).split('\n');
        const field = name => lines.find(line => line.startsWith(`${name}: `))?.slice(name.length + 2);
        if (field('data')) events.push({ id: field('id'), message: JSON.parse(field('data')) });
      }
    });
    response.on('end', () => { state.ended = true; });
    response.on('error', () => { state.ended = true; });
  });
  request.on('error', () => { state.ended = true; });
  request.end(body);
  return state;
}

async function open(valet, headers = {}) {
  const initialize = await post(valet, JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params: {
    protocolVersion: '2025-06-18', capabilities: { elicitation: {} }, clientInfo: { name: 'raw', version: '1' } } }), headers);
  assert.equal(initialize.status, 200, initialize.text);
  const session = { 'mcp-session-id': initialize.headers['mcp-session-id'], 'mcp-protocol-version': '2025-06-18', ...headers };
  assert.equal((await post(valet, '{"jsonrpc":"2.0","method":"notifications/initialized"}', session)).status, 202);
  return session;
}

test('a stream that broke goes on with Last-Event-ID', { timeout: 30000 }, async t => {
  const valet = await serve(t, asker);
  const session = await open(valet);
  const first = stream(valet, 'POST', JSON.stringify({ jsonrpc: '2.0', id: 'c', method: 'tools/call', params: { name: 'three_rounds', arguments: {} } }), session);
  await until(() => first.events.length === 1, 'the first question');
  const question = first.events[0];
  assert.equal(question.message.method, 'elicitation/create');
  first.request.destroy();
  await sleep(100);
  const answer = id => post(valet, JSON.stringify({ jsonrpc: '2.0', id, result: accept({ x: `a${id}` }) }), session);
  assert.equal((await answer(question.message.id)).status, 202);
  await sleep(200); // the second question finds nobody
  const second = stream(valet, 'GET', undefined, { ...session, 'last-event-id': question.id });
  await until(() => second.events.length === 1, 'the second question');
  await answer(second.events[0].message.id);
  await until(() => second.events.length === 2, 'the third question');
  await answer(second.events[1].message.id);
  await until(() => second.ended, 'the end of the stream');
  assert.equal(second.events[2].message.id, 'c');
  assert.match(textOf(second.events[2].message.result), /a\d a\d a\d/);
  // The same again: a client may come back more than once.
  const third = stream(valet, 'GET', undefined, { ...session, 'last-event-id': question.id });
  await until(() => third.ended, 'the end of the stream');
  assert.deepEqual(third.events, second.events);
});

test('the standalone stream gets what belongs to no request, also what came before it', { timeout: 30000 }, async t => {
  const valet = await serve(t, everythingServer);
  const initialize = await open(valet);
  const get = stream(valet, 'GET', undefined, initialize);
  await until(() => get.status === 200, 'the head of the stream');
  assert.match(get.headers['content-type'], /^text\/event-stream/);
  const replaced = stream(valet, 'GET', undefined, initialize);
  await until(() => get.ended, 'the first one to be replaced');
  assert.equal(replaced.status, 200);
  assert.equal((await post(valet, undefined, initialize, { method: 'DELETE' })).status, 200);
  await until(() => replaced.ended, 'the end with the session');
});

test('cancelled requests keep nothing open', { timeout: 30000 }, async t => {
  const valet = await serve(t, asker);
  const client = await connectLegacy(t, valet, 'old');
  const controller = new AbortController();
  const pending = client.callTool({ name: 'stubborn', arguments: { ms: 500 } }, undefined, { signal: controller.signal });
  await sleep(100);
  controller.abort('enough');
  await assert.rejects(pending);
  await sleep(700);
  assert.match(textOf(await client.callTool({ name: 'plain', arguments: {} })), /plain/);
});

test('payload bytes are the same for legacy clients', { timeout: 20000 }, async t => {
  const valet = await serve(t, ['node', fixture('raw.mjs')]);
  const session = await open(valet);
  const bytes = '{"n":9223372036854775807,"d":1.0,"e":1e400,"s":"\\u0061\\/","z":-0, "z":1}';
  const { text } = await post(valet, `{"jsonrpc":"2.0","id":"\\u0031","method":"tools/call","params":{"name":"echo","arguments":${bytes}}}`, session);
  assert.equal(text, `{"jsonrpc":"2.0","id":"\\u0031","result":{"content":[],"structuredContent":${bytes}}}`);
});

test('an answer finds its request when the server spells the id in its own way', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker); // reads an id and writes it again
  const session = await open(valet);
  for (const id of ['"a\\/b"', '"\\u00e9"', '-0', '"\\u0031"', '1']) {
    const { status, text } = await post(valet, `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"plain","arguments":{}}}`, session, { signal: AbortSignal.timeout(5000) });
    assert.equal(status, 200, id);
    assert.ok(JSON.parse(text).id == JSON.parse(id) && typeof JSON.parse(text).id === typeof JSON.parse(id));
  }
});

test('requests of clients that vanish keep little, however they are called', { timeout: 60000 }, async t => {
  const valet = await serve(t, asker, { env: { ASAN_OPTIONS: 'quarantine_size_mb=1' } }); // freed memory is not to count
  const session = await open(valet);
  const resident = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${valet.pid}/status`, 'utf8'))[1]) / 1024;
  const long = 'x'.repeat(1 << 20);
  const body = (id, token) => JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'stubborn', arguments: { ms: 60000 }, _meta: { progressToken: token } } });
  const refused = await post(valet, body(long, 1), session);
  assert.equal(refused.status, 400);
  assert.match(refused.text, /id is longer/);
  assert.ok(refused.text.length < 200);
  const before = resident();
  for (let i = 0; i < 60; i++)
    await assert.rejects(post(valet, body(i, `${i}${long}`), session, { signal: AbortSignal.timeout(50) }));
  await sleep(500);
  assert.ok(resident() - before < 40, `${before} MB, then ${resident()} MB`);
});

test('the policy: hidden names stay hidden, and legacy clients can be refused', { timeout: 30000 }, async t => {
  const valet = await serve(t, asker, { policy: 'version: 1\nrules:\n  - match: { tool: "confirm" }\n    hide: true\n' });
  const client = await connectLegacy(t, valet, 'old');
  const names = (await client.listTools()).tools.map(tool => tool.name);
  assert.ok(names.includes('plain') && !names.includes('confirm'));
  await assert.rejects(client.callTool({ name: 'confirm', arguments: { what: 'all' } }), /-32602|Not found/);
  const closed = await serve(t, asker, { policy: 'version: 1\nlegacy_clients: refuse\n' });
  await assert.rejects(connectLegacy(t, closed, 'old'));
  assert.equal((await post(closed, undefined, { 'mcp-session-id': '0'.repeat(32) }, { method: 'GET' })).status, 405);
});

test('the number of sessions is limited; those that nobody uses make room', { timeout: 60000 }, async t => {
  const valet = await serve(t, ['node', fixture('raw.mjs')], { policy: 'version: 1\nlimits: { legacy_sessions: 2 }\n' });
  const [a, b] = [await open(valet), await open(valet)];
  const get = stream(valet, 'GET', undefined, b);
  await until(() => get.status === 200, 'the head of the stream');
  const c = await open(valet);
  const list = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'echo', arguments: {} } });
  assert.equal((await post(valet, list, a)).status, 404);
  assert.equal((await post(valet, list, b)).status, 200);
  assert.equal((await post(valet, list, c)).status, 200);
  const more = [stream(valet, 'GET', undefined, c)];
  await until(() => more[0].status === 200, 'the head of the stream');
  const refused = await post(valet, JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params: {} }));
  assert.equal(refused.status, 503);
  assert.match(refused.text, /limits\.legacy_sessions/);
  await until(() => children(valet.pid).length === 2, 'only two servers');
});

test('readiness follows the sessions of legacy clients, too', { timeout: 30000 }, async t => {
  const flag = join(scratch(t), 'flag'), socket = join(scratch(t), 'admin');
  const valet = await serve(t, ['sh', '-c', `[ -e ${flag} ] && exec node ${fixture('asker.mjs')}; exit 1`], { args: ['--admin', `unix:${socket}`] });
  const ready = () => new Promise((resolve, reject) => http.get({ socketPath: socket, path: '/readyz' }, response => resolve(response.resume().statusCode)).on('error', reject));
  assert.equal(await ready(), 200);
  await assert.rejects(connectLegacy(t, valet, 'old'));
  assert.equal(await ready(), 503);
  writeFileSync(flag, '');
  await until(() => connectLegacy(t, valet, 'old').then(() => true, () => false), 'the server to start');
  assert.equal(await ready(), 200);
});

test('an orderly end with legacy clients', { timeout: 30000 }, async t => {
  const valet = await serve(t, asker);
  const client = await connectLegacy(t, valet, 'old');
  const running = client.callTool({ name: 'stubborn', arguments: { ms: 600 } });
  await sleep(150);
  valet.child.kill('SIGTERM');
  assert.match(textOf(await running), /done anyway/);
  assert.deepEqual(await valet.exited, { code: 0, signal: null });
});

// A server over HTTP that answers first, or only, what nobody asked, to a client whose ids are no numbers.
for (const [name, spoil, expected] of [
  ['a body for another id', answer => [{ type: 'json', body: { ...answer, id: 'another' } }], /answered with another id/],
  ['an error without an id', ({ jsonrpc }) => [{ type: 'json', body: { jsonrpc, id: null, error: { code: -32600, message: 'no idea' } } }], /answered with another id: .*no idea/],
  ['a stream that begins with another answer', answer => [{ type: 'event', body: { ...answer, id: 'another' } }, { type: 'event', body: answer }], 'mine'],
  ['a stream with nothing but another answer', answer => [{ type: 'event', body: { ...answer, id: 'another' } }], /ended before|without a response|stream/],
  ['its own answer', answer => [{ type: 'json', body: answer }], 'mine'],
])
  test(`a server over HTTP answers with ${name}`, { timeout: 20000 }, async t => {
    const server = http.createServer((request, response) => {
      let text = '';
      request.on('data', data => { text += data; }).on('end', () => {
        const { id, method } = text ? JSON.parse(text) : {};
        if (id === undefined) return response.writeHead(request.method === 'POST' ? 202 : 405).end();
        const result = method === 'initialize' ? { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'odd', version: '1' } }
          : { content: [{ type: 'text', text: 'mine' }] };
        const answers = method === 'initialize' ? [{ type: 'json', body: { jsonrpc: '2.0', id, result } }] : spoil({ jsonrpc: '2.0', id, result });
        response.setHeader('content-type', answers[0].type === 'json' ? 'application/json' : 'text/event-stream');
        for (const { type, body } of answers) response.write(type === 'json' ? JSON.stringify(body) : `data: ${JSON.stringify(body)}\n\n`);
        response.end();
      });
    });
    await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
    t.after(() => server.close());
    const valet = await serve(t, [], { args: ['--upstream', `http://127.0.0.1:${server.address().port}/mcp`] });
    const opened = await post(valet, JSON.stringify({ jsonrpc: '2.0', id: 'open', method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'raw', version: '1' } } }));
    const headers = { 'mcp-session-id': opened.headers['mcp-session-id'], 'mcp-protocol-version': '2025-11-25' };
    await post(valet, JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }), headers);
    const { text } = await post(valet, JSON.stringify({ jsonrpc: '2.0', id: 'a\u0062c', method: 'tools/call', params: { name: 'x' } }), headers);
    const messages = text.startsWith('{') ? [JSON.parse(text)] : text.split('\n').filter(line => line.startsWith('data: {')).map(line => JSON.parse(line.slice(6)));
    const { id, result, error } = messages.at(-1);
    assert.equal(id, 'abc', text);
    if (expected === 'mine') assert.equal(textOf(result), 'mine');
    else assert.match(error.message, expected);
  });
