// A modern client with a modern server: everything passes through, over each pair of transports.
import test from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { ask, call, everything, fixture, makeClient, policyFile, post, meta, program, serve, textOf, until } from './valet.mjs';

const policy = 'version: 1\nupstream: { era: modern }\n';
const modern = ['node', fixture('modern.mjs')];

async function startHttp(t) {
  const child = spawn(modern[0], [modern[1], 'http'], { stdio: ['ignore', 'pipe', 'inherit'] });
  let out = '';
  child.stdout.on('data', data => { out += data; });
  t.after(() => child.kill('SIGKILL'));
  return `http://127.0.0.1:${await until(() => /^(\d+)\n/m.exec(out)?.[1], 'the server to listen')}/`;
}

for (const upstream of ['stdio', 'http'])
  for (const face of ['stdio', 'http'])
    test(`a modern client over ${face}, a modern server over ${upstream}`, { timeout: 30000 }, async t => {
      const command = upstream === 'stdio' ? modern : [];
      const args = upstream === 'stdio' ? [] : ['--upstream', await startHttp(t)];
      const client = makeClient(everything, { 'elicitation/create': async () => ({ action: 'accept', content: { sure: 'yes' } }) });
      if (face === 'http') await client.connect(new StreamableHTTPClientTransport(new URL((await serve(t, command, { args, policy })).url)));
      else await client.connect(new StdioClientTransport({ command: program, stderr: 'inherit',
        args: ['--policy', policyFile(t, policy), ...args, '--log-level', 'error', ...(command.length ? ['--', ...command] : [])] }));
      t.after(() => client.close());
      assert.equal(client.getServerVersion().name, 'modern');
      assert.ok((await client.listTools()).tools.some(tool => tool.name === 'confirm'));
      assert.equal(textOf(await client.callTool({ name: 'plain', arguments: { a: 1 } })), 'plain {"a":1}');
      assert.equal(textOf(await client.callTool({ name: 'confirm', arguments: { what: 'x' } })), 'deleted x yes');
      const progress = [];
      assert.equal(textOf(await client.callTool({ name: 'steps', arguments: {} }, { onprogress: p => progress.push(p.progress) })), 'stepped');
      assert.deepEqual(progress, [1, 2, 3]);
    });

test('many clients share one modern server, with the same ids', { timeout: 30000 }, async t => {
  const valet = await serve(t, modern, { policy });
  const answers = await Promise.all(Array.from({ length: 30 }, (_, i) => call(valet, 'plain', { i }, {}, { id: 1 })));
  answers.forEach(({ json }, i) => {
    assert.equal(json.id, 1);
    assert.equal(textOf(json.result), `plain {"i":${i}}`);
  });
  const pids = await Promise.all(Array.from({ length: 3 }, () => call(valet, 'pid')));
  assert.equal(new Set(pids.map(({ result }) => textOf(result))).size, 1);
  const round = await call(valet, 'confirm', { what: 'y' });
  assert.equal(round.result.resultType, 'input_required');
  assert.match(round.result.requestState, /state of y/);
});

test('a server over HTTP gets the headers of each request, which must be true', { timeout: 30000 }, async t => {
  const valet = await serve(t, [], { policy, args: ['--upstream', await startHttp(t)] });
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'plain', arguments: {}, _meta: meta() } });
  const headers = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call' };
  for (const more of [{}, { 'mcp-name': 'other' }]) {
    const { status, text } = await post(valet, body, { ...headers, ...more });
    assert.equal(status, 400);
    assert.equal(JSON.parse(text).error.code, -32020);
  }
  assert.equal((await post(valet, body, { ...headers, 'mcp-name': 'plain' })).status, 200);
  const unknown = await ask(valet, 'no/such');
  assert.equal(unknown.status, 404);
  assert.equal(unknown.error.code, -32601);
});

test('subscriptions pass with the ids of their clients', { timeout: 30000 }, async t => {
  const valet = await serve(t, [], { policy, args: ['--upstream', await startHttp(t)] });
  const seen = [];
  const client = makeClient(everything);
  await client.connect(new StreamableHTTPClientTransport(new URL(valet.url)));
  t.after(() => client.close());
  client.setNotificationHandler('notifications/tools/list_changed', () => { seen.push(1); });
  await client.listen({ toolsListChanged: true });
  await call(valet, 'change');
  await until(() => seen.length, 'the change to arrive');
});

test('a lost server fails what was on its way, and the next request gets a new one', { timeout: 30000 }, async t => {
  const valet = await serve(t, modern, { policy });
  const pid = Number(textOf((await call(valet, 'pid')).result));
  const running = call(valet, 'steps');
  await new Promise(resolve => setTimeout(resolve, 50));
  process.kill(pid, 'SIGKILL');
  const { status, error } = await running;
  assert.equal(status, 502);
  assert.equal(error.code, -32603);
  assert.notEqual(Number(textOf((await call(valet, 'pid')).result)), pid);
});

test('what the policy hides stays hidden', { timeout: 30000 }, async t => {
  const valet = await serve(t, modern, { policy: policy + 'rules:\n  - match: { tool: "confirm" }\n    hide: true\n' });
  const { result } = await ask(valet, 'tools/list');
  assert.ok(result.tools.length && !result.tools.some(tool => tool.name === 'confirm'));
  assert.equal((await call(valet, 'confirm', { what: 'x' })).error.code, -32602);
});

test('whatever a server calls a notification, it stays one message', { timeout: 20000 }, async t => {
  const method = 'notifications/x","id":1,"result":{},"y":"\n\u{1F600}\\';
  const server = `require('readline').createInterface({ input: process.stdin }).on('line', line => {
    const { id } = JSON.parse(line);
    if (id === undefined) return;
    for (const message of [{ method: ${JSON.stringify(method)}, params: { _meta: { 'io.modelcontextprotocol/subscriptionId': id } } }, { id, result: { content: [] } }])
      console.log(JSON.stringify({ jsonrpc: '2.0', ...message }));
  });`;
  const valet = await serve(t, ['node', '-e', server], { policy });
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'plain', arguments: {}, _meta: meta() } });
  const { text } = await post(valet, body, { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'plain' });
  const messages = text.split('\n').filter(line => line.startsWith('data: ')).map(line => JSON.parse(line.slice(6)));
  assert.equal(messages.length, 2);
  assert.deepEqual(messages.map(message => message.method), [method, undefined]);
  assert.ok(!('id' in messages[0]));
});
