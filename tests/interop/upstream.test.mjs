// Legacy servers over HTTP: Streamable HTTP and HTTP+SSE, official servers and the v1 SDK in its several ways to ask.
import test from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { createServer as createRawServer } from 'node:net';
import { join } from 'node:path';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { answerAll, ask, call, descriptors, everything, fixture, freePort, makeClient, packaged, program, recorded, retry, scratch, serve, sleep, textOf, until } from './valet.mjs';

const accept = content => ({ action: 'accept', content });

async function start(t, command, { env = {}, ready = /^(\d+)\n/m } = {}) {
  const child = spawn(command[0], command.slice(1), { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  let out = '';
  child.stdout.on('data', data => { out += data; });
  child.stderr.on('data', data => { out += data; });
  t.after(() => child.kill('SIGKILL'));
  const found = await until(() => ready.exec(out), `the server to listen: ${out}`);
  return { child, port: Number(found[1]), get out() { return out; } };
}

const front = (t, url, options = {}) => serve(t, [], { ...options, args: ['--upstream', url, ...(options.args ?? [])] });

for (const [mode, path] of [['streamableHttp', '/mcp'], ['sse', '/sse']])
  for (const face of ['stdio', 'http'])
    test(`everything over ${mode}, in front of it ${face}`, { timeout: 60000 }, async t => {
      const port = await freePort();
      await start(t, ['node', packaged('@modelcontextprotocol/server-everything/dist/index.js'), mode],
        { env: { PORT: String(port) }, ready: /(listening|running) on port (\d+)/i });
      const client = makeClient(everything, {
        'elicitation/create': async () => accept({ name: 'Ada' }),
        'sampling/createMessage': async () => ({ role: 'assistant', model: 'm', content: { type: 'text', text: 'sampled words' } }),
        'roots/list': async () => ({ roots: [{ uri: 'file:///srv/project', name: 'project' }] }),
      });
      const url = `http://127.0.0.1:${port}${path}`;
      if (face === 'http') await client.connect(new StreamableHTTPClientTransport(new URL((await front(t, url)).url)));
      else await client.connect(new StdioClientTransport({ command: program, args: ['--upstream', url, '--log-level', 'error'], stderr: 'inherit' }));
      t.after(() => client.close());
      assert.ok((await client.listTools()).tools.length > 5);
      assert.match(textOf(await client.callTool({ name: 'trigger-sampling-request', arguments: { prompt: 'p', maxTokens: 7 } })), /sampled words/);
      assert.match(textOf(await client.callTool({ name: 'trigger-elicitation-request', arguments: {} })), /Name: Ada/);
      assert.match(textOf(await client.callTool({ name: 'get-roots-list', arguments: {} })), /file:\/\/\/srv\/project/);
      const progress = [];
      await client.callTool({ name: 'trigger-long-running-operation', arguments: { duration: 0.6, steps: 3 } }, { onprogress: p => progress.push(p.progress) });
      assert.ok(progress.length >= 2);
    });

for (const tool of ['on_post', 'on_get'])
  for (const options of [[], ['events'], ...(tool === 'on_get' ? [['json']] : [])])
    test(`the v1 SDK asks ${tool} ${options}`, { timeout: 30000 }, async t => {
      const record = join(scratch(t), 'record');
      const server = await start(t, ['node', fixture('http_asker.mjs'), ...options], { env: { RECORD: record } });
      const valet = await front(t, `http://127.0.0.1:${server.port}/mcp`);
      for (const what of ['a', 'b']) {
        const { result } = await call(valet, tool, { what });
        assert.equal(result.resultType, 'input_required');
        const last = await retry(valet, tool, { what }, result, answerAll(result, accept({ sure: 'y' })));
        assert.equal(textOf(last.result), `deleted ${what} y`);
      }
      valet.child.kill('SIGTERM');
      assert.deepEqual(await valet.exited, { code: 0, signal: null });
      await until(() => recorded(record).some(event => event.closed), 'the DELETE of the session');
    });

test('calls run side by side where they ask on their own streams', { timeout: 30000 }, async t => {
  const server = await start(t, ['node', fixture('http_asker.mjs')]);
  const valet = await front(t, `http://127.0.0.1:${server.port}/mcp`);
  const parked = await Promise.all([...Array(20).keys()].map(async n => ({ n, result: (await call(valet, 'on_post', { what: String(n) })).result })));
  for (const { n, result } of parked) assert.equal(Object.values(result.inputRequests)[0].params.message, `Delete ${n}?`);
  await Promise.all(parked.map(async ({ n, result }) => {
    const last = await retry(valet, 'on_post', { what: String(n) }, result, answerAll(result, accept({ sure: `s${n}` })));
    assert.equal(textOf(last.result), `deleted ${n} s${n}`);
  }));
});

test('a stream that the server closes goes on by GET', { timeout: 30000 }, async t => {
  const server = await start(t, ['node', fixture('http_asker.mjs'), 'events']);
  const valet = await front(t, `http://127.0.0.1:${server.port}/mcp`);
  assert.equal(textOf((await call(valet, 'dropped')).result), 'came by GET');
});

test('the server is killed and started again: parked calls are lost, new ones work', { timeout: 30000 }, async t => {
  const port = await freePort();
  const first = await start(t, ['node', fixture('http_asker.mjs')], { env: { PORT: String(port) } });
  const valet = await front(t, `http://127.0.0.1:${port}/mcp`);
  const { result } = await call(valet, 'on_post', { what: 'x' });
  first.child.kill('SIGKILL');
  await sleep(300);
  const lost = await retry(valet, 'on_post', { what: 'x' }, result, answerAll(result, accept({ sure: 'y' })));
  assert.equal(lost.error.code, -32603);
  assert.equal(lost.error.data.reason, 'lost');
  const down = await ask(valet, 'server/discover', {}, { capabilities: {} });
  assert.equal(down.status, 503);
  await start(t, ['node', fixture('http_asker.mjs')], { env: { PORT: String(port) } });
  await until(async () => (await call(valet, 'plain')).result, 'the new server to serve');
});

test('credentials reach the server, each principal has its own session', { timeout: 30000 }, async t => {
  const record = join(scratch(t), 'record');
  const server = await start(t, ['node', fixture('http_asker.mjs')], { env: { RECORD: record } });
  const valet = await front(t, `http://127.0.0.1:${server.port}/mcp`);
  for (const who of ['alice', 'bob', 'alice'])
    assert.match(textOf((await call(valet, 'plain', {}, {}, { headers: { authorization: `Bearer ${who}` } })).result), new RegExp(`Bearer ${who}$`));
  assert.equal(recorded(record).filter(event => event.opened).length, 2);
  assert.ok(!valet.log.includes('Bearer'));
});

test('kubernetes over HTTP', { timeout: 30000 }, async t => {
  const { writeFileSync } = await import('node:fs');
  const dir = scratch(t), port = await freePort();
  writeFileSync(join(dir, 'config.toml'), 'confirmation_fallback = "deny"\n[[confirmation_rules]]\ntool = "configuration_view"\nmessage = "Really?"\n');
  writeFileSync(join(dir, 'kubeconfig'), 'apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]\n' +
    'contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\nusers: [{name: u, user: {token: t}}]\n');
  const child = spawn(packaged('kubernetes-mcp-server-linux-amd64/bin/kubernetes-mcp-server-linux-amd64'),
    ['--port', String(port), '--config', join(dir, 'config.toml'), '--kubeconfig', join(dir, 'kubeconfig')], { stdio: 'ignore' });
  t.after(() => child.kill('SIGKILL'));
  await until(() => fetch(`http://127.0.0.1:${port}/healthz`).then(() => true, () => false), 'kubernetes to listen');
  const valet = await front(t, `http://127.0.0.1:${port}/mcp`);
  const { result } = await call(valet, 'configuration_view', {}, {}, { capabilities: { elicitation: {} } });
  assert.equal(Object.values(result.inputRequests)[0].params.message, 'Really?');
  const last = await retry(valet, 'configuration_view', {}, result, answerAll(result, accept({})), { capabilities: { elicitation: {} } });
  assert.match(textOf(last.result), /current-context: x/);
});

test('what cannot be reached gives one clear error', { timeout: 30000 }, async t => {
  for (const [url, words] of [
    ['http://127.0.0.1:1/mcp', /connect/i],
    ['http://no-such-host.invalid/mcp', /resolve/i],
    ['unix:/no/such/socket:/mcp', /connect/i],
  ]) {
    const valet = await front(t, url);
    const { status, error } = await ask(valet, 'tools/list');
    assert.equal(status, 200);
    assert.equal(error.code, -32603);
    assert.equal(error.data.reason, 'unavailable');
    assert.match(error.message, words);
    assert.equal((await ask(valet, 'server/discover')).status, 503);
    valet.child.kill('SIGKILL');
  }
});

test('fastmcp asks on the GET stream before the head of its answer', { timeout: 60000 }, async t => {
  const port = await freePort();
  await start(t, ['node', fixture('fastmcp.mjs')], { env: { PORT: String(port) }, ready: /(ready)/ });
  const valet = await front(t, `http://127.0.0.1:${port}/mcp`);
  const args = { topic: 'ships' };
  let { result } = await call(valet, 'sampled', args);
  for (let i = 0; result.resultType === 'input_required' && i < 5; i++)
    ({ result } = await retry(valet, 'sampled', args, result, answerAll(result, request => request.method === 'roots/list'
      ? { roots: [{ uri: 'file:///srv/p', name: 'p' }] }
      : { role: 'assistant', model: 'm', content: { type: 'text', text: request.params.messages[0].content.text.toUpperCase() } })));
  assert.equal(textOf(result), 'ABOUT SHIPS');
});

test('playwright asks for the roots on the GET stream in the middle of a call', { timeout: 60000 }, async t => {
  const port = await freePort();
  await start(t, ['node', packaged('@playwright/mcp/cli.js'), '--port', String(port), '--headless', '--isolated'], { ready: /(istening|url)/ });
  const valet = await front(t, `http://localhost:${port}/mcp`);
  const args = { url: 'about:blank' };
  let { result } = await call(valet, 'browser_navigate', args);
  const asked = [];
  for (let i = 0; result.resultType === 'input_required' && i < 5; i++) {
    asked.push(...Object.values(result.inputRequests).map(request => request.method));
    ({ result } = await retry(valet, 'browser_navigate', args, result, answerAll(result, { roots: [{ uri: 'file:///srv/p', name: 'p' }] })));
  }
  assert.ok(asked.length >= 1 && asked.every(method => method === 'roots/list'), `asked ${asked}`);
  assert.equal(result.resultType, 'complete'); // with or without a browser on this machine
});

test('TLS: a certificate of an unknown authority is refused, of a given one taken, for another name refused', { timeout: 30000 }, async t => {
  const { execFileSync } = await import('node:child_process');
  const { readFileSync } = await import('node:fs');
  const https = await import('node:https');
  const dir = scratch(t), key = join(dir, 'key.pem'), certificate = join(dir, 'cert.pem');
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', key, '-out', certificate,
    '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'], { stdio: 'ignore' });
  const server = https.createServer({ key: readFileSync(key), cert: readFileSync(certificate) }, async (request, response) => {
    let body = '';
    for await (const piece of request) body += piece;
    if (request.method !== 'POST') { response.writeHead(405).end(); return; }
    const message = JSON.parse(body);
    if (message.id === undefined) { response.writeHead(202).end(); return; }
    const result = message.method === 'initialize' ? { protocolVersion: '2025-03-26', capabilities: { tools: {} }, serverInfo: { name: 'tls', version: '1' } } : { tools: [] };
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result }));
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const at = (host, args) => front(t, `https://${host}:${server.address().port}/mcp`, { args });
  assert.match((await ask(await at('localhost', []), 'tools/list')).error.message, /certificate/i);
  assert.match((await ask(await at('127.0.0.1', ['--upstream-ca', certificate]), 'tools/list')).error.message, /certificate|subject|match/i);
  assert.deepEqual((await ask(await at('localhost', ['--upstream-ca', certificate]), 'tools/list')).result.tools, []);
});

test('the server is killed and started again under load: one answer for each request, nothing leaks', { timeout: 60000 }, async t => {
  const port = await freePort();
  const up = () => start(t, ['node', fixture('http_asker.mjs')], { env: { PORT: String(port) } });
  let server = await up();
  const valet = await front(t, `http://127.0.0.1:${port}/mcp`);
  const seen = { done: 0, lost: 0, unavailable: 0, other: [] };
  let stop = false;
  const note = answer => {
    const reason = answer.error?.data?.reason;
    if (answer.result) seen.done++;
    else if (reason === 'lost' || reason === 'unavailable') seen[reason]++;
    else seen.other.push(answer.text);
    return answer.result;
  };
  const load = [...Array(8).keys()].map(async n => {
    while (!stop) {
      const what = `w${n}`;
      const result = note(await call(valet, n % 2 ? 'plain' : 'on_post', { what }));
      if (result?.resultType === 'input_required') note(await retry(valet, 'on_post', { what }, result, answerAll(result, accept({ sure: 'y' }))));
      if (!result) await sleep(50);
    }
  });
  for (let i = 0; i < 3; i++) {
    await sleep(700);
    server.child.kill('SIGKILL');
    await sleep(300);
    server = await up();
  }
  await sleep(500);
  stop = true;
  await Promise.all(load);
  assert.deepEqual(seen.other, []);
  assert.ok(seen.done > 20 && seen.lost + seen.unavailable > 0, JSON.stringify(seen));
  assert.ok((await call(valet, 'plain')).result);
  await sleep(500);
  assert.ok(descriptors(valet.pid) < 60);
  valet.child.kill('SIGTERM');
  assert.deepEqual(await valet.exited, { code: 0, signal: null });
});

// HTTP+SSE: the endpoint may be relative, an absolute path or of the same origin, with a query; another origin is refused.
for (const [endpoint, path, policy] of [
  ['messages?session_id=1', '/prefix/messages?session_id=1'],
  ['/messages?session_id=2', '/messages?session_id=2'],
  ['ORIGIN/other/messages?x=%20', '/other/messages?x=%20'],
  ['HTTP://127.0.0.1:PORT/messages', '/messages'],
  ['ORIGIN?x=1', '/?x=1'],
  ['../messages?x=/../1', '/messages?x=/../1'],
  ['../../messages', '/messages'],
  ['./a/./b/../../messages/.', '/prefix/messages/'],
  ['/a/b/..', '/a/'],
  ['/a/...', '/a/...'],
  ['messages here', undefined],
  ['http://evil.example/messages', undefined],
  ['//evil.example/messages', undefined],
  ['ORIGIN.evil.example/messages', undefined],
  ['http://localhost:PORT/messages', '/messages', 'version: 1\nupstream: { cross_origin: true }\n'],
])
  test(`HTTP+SSE endpoint ${endpoint}${policy ? ' by policy' : ''}`, { timeout: 20000 }, async t => {
    const posted = [];
    let stream;
    const server = createServer(async (request, response) => {
      let body = '';
      for await (const piece of request) body += piece;
      const { port } = server.address();
      if (request.method === 'GET') {
        stream = response;
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(`event: endpoint\ndata: ${endpoint.replace('ORIGIN', `http://127.0.0.1:${port}`).replace('PORT', port)}\n\n`);
        return;
      }
      if (request.url === '/prefix/sse') { response.writeHead(405).end(); return; }
      posted.push(request.url);
      response.writeHead(202).end('Accepted');
      const { id, method } = JSON.parse(body);
      if (id !== undefined) stream.write(`data: ${JSON.stringify({ jsonrpc: '2.0', id, result: method === 'initialize'
        ? { protocolVersion: '2024-11-05', capabilities: { tools: {} }, serverInfo: { name: 'sse', version: '1' } } : { tools: [] } })}\n\n`);
    });
    await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
    t.after(() => { server.closeAllConnections(); server.close(); });
    const valet = await front(t, `http://127.0.0.1:${server.address().port}/prefix/sse`, { policy });
    const { result, error } = await ask(valet, 'tools/list', {}, { capabilities: {} });
    if (path === undefined) {
      assert.match(error.message, /another origin/);
      assert.deepEqual(posted, []);
    } else {
      assert.deepEqual(result?.tools, [], error?.message);
      assert.ok(posted.length >= 3 && posted.every(url => url === path), `posted to ${posted}`);
    }
  });

// A server that answers every request with these header lines, byte for byte; `seen` are the Mcp-Session-Id that come back.
async function answerWith(t, headerOf, status = '200 OK') {
  const seen = [];
  let requests = 0;
  const server = createRawServer(socket => {
    let text = '';
    socket.on('error', () => {});
    socket.on('data', data => {
      text += data;
      const head = text.indexOf('\r\n\r\n');
      const length = Number(/content-length: (\d+)/i.exec(text)?.[1] ?? 0);
      if (head < 0 || text.length < head + 4 + length) return;
      const message = length ? JSON.parse(text.slice(head + 4)) : {};
      seen.push(/mcp-session-id: ([^\r]*)/i.exec(text.slice(0, head))?.[1]);
      const result = message.method === 'initialize'
        ? { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } } : { tools: [] };
      const body = message.id === undefined ? '' : JSON.stringify({ jsonrpc: '2.0', id: message.id, result });
      const line = message.id === undefined && length ? '202 Accepted' : length ? status : '405 Method Not Allowed';
      socket.end(Buffer.from(`HTTP/1.1 ${line}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nConnection: close\r\n${headerOf(requests++)}\r\n${body}`, 'latin1'));
    });
  }).listen(0, '127.0.0.1');
  t.after(() => server.close());
  await until(() => server.address(), 'a port');
  return { url: `http://127.0.0.1:${server.address().port}/mcp`, seen };
}

for (const [what, id, fine] of [['as long as can be', 'x'.repeat(511), true], ['empty', '', true], ['too long', 'x'.repeat(512), false], ['64 KB', 'x'.repeat(65536), false],
  ['with a space', 'a b', false], ['with a control character', 'a\x01b', false], ['with a bare CR', 'a\rX-Other: b', false], ['not ASCII', 'a\xe9', false]])
  test(`the Mcp-Session-Id of a server: ${what}`, { timeout: 20000 }, async t => {
    const server = await answerWith(t, () => `Mcp-Session-Id: ${id}\r\n`);
    const valet = await front(t, server.url);
    const { result, error } = await ask(valet, 'tools/list');
    if (fine) assert.deepEqual(result?.tools, []);
    else assert.match(error?.message ?? '', /Mcp-Session-Id|is no HTTP/); // a head that HTTP does not know is refused as such
    assert.ok(server.seen.every(seen => seen === undefined || (fine && seen === id)), server.seen.join());
  });

test('the first Mcp-Session-Id of a server counts', { timeout: 20000 }, async t => {
  const server = await answerWith(t, n => `Mcp-Session-Id: s${n}\r\n`);
  const valet = await front(t, server.url);
  assert.deepEqual((await ask(valet, 'tools/list')).result?.tools, []);
  assert.deepEqual((await ask(valet, 'tools/list')).result?.tools, []);
  assert.deepEqual([...new Set(server.seen)], [undefined, 's0']);
});

test('a challenge is passed on in one line, or not at all', { timeout: 20000 }, async t => {
  for (const [challenge, passes] of [['Bearer realm="x"', true], ['Bearer\rX-Other: b', false]]) {
    const server = await answerWith(t, () => `WWW-Authenticate: ${challenge}\r\n`, '401 Unauthorized');
    const valet = await front(t, server.url);
    const { status, headers } = await fetch(valet.url, { method: 'POST', body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize',
      params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'c', version: '1' } } }),
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' } });
    assert.ok(status === 401 || (!passes && status === 502), String(status));
    assert.equal(headers.get('www-authenticate'), passes ? challenge : null);
    assert.equal(headers.get('x-other'), null);
  }
});
