// The HTTP face, request by request (2026-07-28 basic/transports/streamable-http).
import test from 'node:test';
import assert from 'node:assert/strict';
import net from 'node:net';
import { ask, call, fixture, meta, post, serve, textOf } from './valet.mjs';

const asker = ['node', fixture('asker.mjs')];
const body = (method, params = {}, id = 1) => JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta: meta() } });
const modern = (method, name) => ({ 'mcp-protocol-version': '2026-07-28', 'mcp-method': method, ...(name ? { 'mcp-name': name } : {}) });

test('requests and their statuses', { timeout: 60000 }, async t => {
  const valet = await serve(t, asker);
  const cases = [
    ['discover', body('server/discover'), modern('server/discover'), 200],
    ['list', body('tools/list'), modern('tools/list'), 200],
    ['unknown method', body('no/such'), modern('no/such'), 404, -32601],
    ['initialize', body('initialize'), modern('initialize'), 404, -32601],
    ['no version header', body('tools/list'), { 'mcp-method': 'tools/list' }, 400, -32020],
    ['no method header', body('tools/list'), { 'mcp-protocol-version': '2026-07-28' }, 400, -32020],
    ['wrong method header', body('tools/list'), modern('tools/call'), 400, -32020],
    ['no name header', body('tools/call', { name: 'plain' }), modern('tools/call'), 400, -32020],
    ['wrong name header', body('tools/call', { name: 'plain' }), modern('tools/call', 'other'), 400, -32020],
    ['encoded name header', body('tools/call', { name: 'plain' }), modern('tools/call', '=?base64?cGxhaW4=?='), 200],
    ['badly encoded name header', body('tools/call', { name: 'plain' }), modern('tools/call', '=?base64?cGxhaW4?='), 400, -32020],
    ['no JSON', '{"jsonrpc"', modern('tools/list'), 400, -32700],
    ['a batch', `[${body('tools/list')}]`, modern('tools/list'), 400, -32600],
    ['a response', '{"jsonrpc":"2.0","id":1,"result":{}}', {}, 400, -32600],
    ['a notification', '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}', {}, 202],
    ['no meta', '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}', modern('tools/list'), 400, -32602],
    ['another content type', body('tools/list'), { ...modern('tools/list'), 'content-type': 'text/plain' }, 415],
    ['no event streams accepted', body('tools/list'), { ...modern('tools/list'), accept: 'application/json' }, 406],
    ['everything accepted', body('tools/list'), { ...modern('tools/list'), accept: '*/*' }, 200],
    ['a strange origin', body('tools/list'), { ...modern('tools/list'), origin: 'http://evil.example' }, 403],
    ['a strange host', body('tools/list'), { ...modern('tools/list'), host: 'evil.example' }, 403],
    ['our own origin', body('tools/list'), { ...modern('tools/list'), origin: `http://127.0.0.1:${valet.port}` }, 200],
    ['a session id is ignored', body('tools/list'), { ...modern('tools/list'), 'mcp-session-id': 'x', 'last-event-id': '4' }, 200],
  ];
  for (const [what, text, headers, status, code] of cases) {
    const response = await post(valet, text, headers);
    assert.equal(response.status, status, `${what}: ${response.text}`);
    if (code) assert.equal(JSON.parse(response.text).error.code, code, what);
    assert.equal(response.headers['mcp-session-id'], undefined);
  }
  for (const method of ['GET', 'DELETE', 'PUT', 'OPTIONS']) {
    const response = await post(valet, undefined, {}, { method });
    assert.equal(response.status, 405);
    assert.equal(response.headers.allow, 'POST');
  }
});

test('versions', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker);
  const message = { jsonrpc: '2.0', id: 7, method: 'tools/list', params: { _meta: { ...meta(), 'io.modelcontextprotocol/protocolVersion': 'v999.0.0' } } };
  const wrong = await post(valet, JSON.stringify(message), { 'mcp-protocol-version': 'v999.0.0', 'mcp-method': 'tools/list' });
  assert.equal(wrong.status, 400);
  assert.deepEqual(JSON.parse(wrong.text), { jsonrpc: '2.0', id: 7, error: { code: -32022, message: 'Unsupported protocol version',
    data: { supported: ['2026-07-28'], requested: 'v999.0.0' } } });
  const mismatch = await post(valet, JSON.stringify(message), { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/list' });
  assert.equal(JSON.parse(mismatch.text).error.code, -32020);
});

test('a capability that the client lacks', { timeout: 20000 }, async t => {
  const valet = await serve(t, ['node', fixture('raw.mjs')]);
  const { status, error } = await call(valet, 'ask', {}, {}, { capabilities: { sampling: {} } });
  assert.equal(status, 400);
  assert.equal(error.code, -32021);
  assert.deepEqual(error.data.requiredCapabilities, { elicitation: { form: {} } });
});

test('one JSON object without notifications, an event stream with them', { timeout: 20000 }, async t => {
  const everything = ['node', (await import('./valet.mjs')).packaged('@modelcontextprotocol/server-everything/dist/index.js')];
  const valet = await serve(t, everything);
  // Without capabilities: the server asks for roots whenever it pleases, and that would be a round.
  const plain = await call(valet, 'echo', { message: 'm' }, {}, { capabilities: {} });
  assert.match(plain.headers['content-type'], /^application\/json/);
  const stream = await call(valet, 'trigger-long-running-operation', { duration: 0.3, steps: 3 }, { _meta: { progressToken: 'p-1' } }, { capabilities: {} });
  assert.match(stream.headers['content-type'], /^text\/event-stream/);
  assert.equal(stream.headers['x-accel-buffering'], 'no');
  const messages = stream.text.split('\n').filter(line => line.startsWith('data: ')).map(line => JSON.parse(line.slice(6)));
  assert.ok(messages.length >= 3);
  assert.ok(messages.slice(0, -1).every(message => message.method === 'notifications/progress' && message.params.progressToken === 'p-1'));
  assert.equal(messages.at(-1).result.resultType, 'complete');
});

test('keep-alive, pipelining and an early end', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker);
  const text = body('tools/list');
  const request = `POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nMCP-Protocol-Version: 2026-07-28\r\n` +
    `Mcp-Method: tools/list\r\nContent-Length: ${text.length}\r\n\r\n${text}`;
  const answer = await new Promise((resolve, reject) => {
    let all = '';
    const socket = net.connect(valet.port, '127.0.0.1', () => socket.write(request + request + request));
    socket.on('data', data => { all += data; if (all.split('HTTP/1.1 200 OK').length === 4 && all.endsWith('}')) { socket.end(); resolve(all); } });
    socket.on('error', reject);
    socket.on('close', () => resolve(all));
  });
  assert.equal(answer.split('HTTP/1.1 200 OK').length, 4);
  const half = net.connect(valet.port, '127.0.0.1', () => { half.write(request.slice(0, 60)); half.destroy(); });
  await new Promise(resolve => half.on('close', resolve));
  assert.equal(textOf((await call(valet, 'plain')).result), 'plain {}');
});

test('a reused id on one connection is no trouble, two clients with the same ids neither', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker);
  const answers = await Promise.all([...Array(20).keys()].map(n => ask(valet, 'tools/call', { name: 'plain', arguments: { n } }, { id: 1 })));
  answers.forEach((answer, n) => assert.equal(textOf(answer.result), `plain {"n":${n}}`));
});

test('subscriptions: acknowledged, delivered, ended in order', { timeout: 20000 }, async t => {
  const everything = ['node', (await import('./valet.mjs')).packaged('@modelcontextprotocol/server-everything/dist/index.js')];
  const valet = await serve(t, everything);
  await ask(valet, 'server/discover');
  const listening = ask(valet, 'subscriptions/listen', { notifications: { toolsListChanged: true, resourceSubscriptions: ['demo://resource/static/document/architecture.md'] } }, { id: 'listen:0' });
  await new Promise(resolve => setTimeout(resolve, 800));
  valet.child.kill('SIGTERM');
  const { text, json } = await listening;
  const messages = text.split('\n').filter(line => line.startsWith('data: ')).map(line => JSON.parse(line.slice(6)));
  assert.equal(messages[0].method, 'notifications/subscriptions/acknowledged');
  assert.equal(messages[0].params._meta['io.modelcontextprotocol/subscriptionId'], 'listen:0');
  assert.equal(messages[0].params.notifications.toolsListChanged, true);
  assert.equal(json.id, 'listen:0');
  assert.equal(json.result._meta['io.modelcontextprotocol/subscriptionId'], 'listen:0');
  assert.deepEqual(await valet.exited, { code: 0, signal: null });
});
