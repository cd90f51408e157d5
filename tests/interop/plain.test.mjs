// The connections to a server on this machine: kept, tried again only when nothing was read, and bounded.
import test from 'node:test';
import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { call, freePort, scratch, serve, sleep, textOf, until } from './valet.mjs';

const json = body => `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
const chunk = text => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
const streamHead = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n';
const none = status => `HTTP/1.1 ${status} No\r\nContent-Length: 0\r\n\r\n`;

// A legacy server of bare bytes. `onCall(socket, message, answer)` has the tools/call requests.
async function server(t, onCall, listen = { port: 0, host: '127.0.0.1' }) {
  const seen = { connections: 0, calls: 0, sockets: new Set() };
  const found = createServer(socket => {
    let bytes = '';
    seen.connections++;
    seen.sockets.add(socket);
    socket.setEncoding('latin1').on('error', () => {}).on('close', () => seen.sockets.delete(socket));
    socket.on('data', data => {
      bytes += data;
      for (;;) {
        const end = bytes.indexOf('\r\n\r\n'), length = Number(/content-length: (\d+)/i.exec(bytes.slice(0, end))?.[1] ?? 0);
        if (end < 0 || bytes.length < end + 4 + length) return;
        const method = bytes.split(' ')[0], body = bytes.slice(end + 4, end + 4 + length);
        bytes = bytes.slice(end + 4 + length);
        if (method !== 'POST') { socket.write(none(405)); continue; }
        const message = JSON.parse(body);
        if (message.method === 'tools/call') seen.calls++;
        const answer = JSON.stringify({ jsonrpc: '2.0', id: message.id, result: message.method === 'initialize'
          ? { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'bytes', version: '1' } }
          : { content: [{ type: 'text', text: `answer ${seen.calls}` }] } });
        if (message.id === undefined) socket.write(none(202));
        else if (message.method === 'tools/call') onCall(socket, message, answer, seen);
        else if (message.method === 'initialize' && seen.onInitialize) seen.onInitialize(socket, answer);
        else socket.write(json(answer));
      }
    });
  });
  await new Promise((resolve, reject) => found.on('error', reject).listen(listen, resolve));
  t.after(() => { for (const socket of seen.sockets) socket.destroy(); found.close(); });
  return Object.assign(seen, { port: found.address().port });
}
const front = (t, url) => serve(t, [], { args: ['--upstream', url] });
const at = seen => `http://127.0.0.1:${seen.port}/mcp`;

for (const [name, respond] of Object.entries({
  'a body': (socket, answer) => socket.write(json(answer)),
  'a body in pieces': async (socket, answer) => { for (const byte of json(answer)) { socket.write(byte); await sleep(0); } },
  'an early hint before': (socket, answer) => socket.write(`HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n${json(answer)}`),
  'an event stream that ends with the answer': (socket, answer) => socket.write(`${streamHead}${chunk(`data: ${answer}\n\n`)}0\r\n\r\n`),
  'an event stream that ends later': async (socket, answer) => {
    socket.write(`${streamHead}${chunk(`data: ${answer}\n\n`)}`);
    await sleep(100);
    socket.write('0\r\n\r\n');
  },
}))
  test(`a connection is kept: ${name}`, { timeout: 20000 }, async t => {
    const seen = await server(t, (socket, message, answer) => respond(socket, answer));
    const valet = await front(t, at(seen));
    await call(valet, 'x', {});
    await sleep(300);
    const before = seen.connections;
    for (let i = 2; i < 5; i++) {
      assert.equal(textOf((await call(valet, 'x', {})).result), `answer ${i}`);
      await sleep(300);
    }
    assert.equal(seen.connections, before);
  });

test('a connection is not kept where the server, or the end of the body, says no', { timeout: 20000 }, async t => {
  const seen = await server(t, (socket, message, answer) => {
    if (seen.calls % 2) socket.end(`HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n${answer}`);
    else socket.write(json(answer).replace('\r\n', '\r\nConnection: close\r\n'));
  });
  const valet = await front(t, at(seen));
  for (let i = 0; i < 3; i++) await call(valet, 'x', {}); // what the handshake left is used up
  const before = seen.connections;
  for (let i = 4; i < 8; i++) assert.equal(textOf((await call(valet, 'x', {})).result), `answer ${i}`);
  assert.equal(seen.connections, before + 4);
});

test('a stream that does not end after its answer is closed', { timeout: 20000 }, async t => {
  const seen = await server(t, (socket, message, answer) => {
    socket.write(`${streamHead}${chunk(`data: ${answer}\n\n`)}`);
    const beat = setInterval(() => socket.write(chunk(':\n\n')), 50);
    socket.on('close', () => { clearInterval(beat); seen.closed = true; });
  });
  const valet = await front(t, at(seen));
  await call(valet, 'x', {});
  await until(() => seen.closed, 'the end of the connection', 3000);
});

test('connections that the server closed are not used again', { timeout: 20000 }, async t => {
  const seen = await server(t, (socket, message, answer) => socket.write(json(answer)));
  const valet = await front(t, at(seen));
  await call(valet, 'x', {});
  for (const socket of seen.sockets) socket.end();
  await until(() => !seen.sockets.size, 'the other end to close');
  assert.equal(textOf((await call(valet, 'x', {})).result), 'answer 2');
});

// The first response ends where a read ends, so that the next request begins while the surplus still lies in the socket.
test('surplus bytes behind a response answer nothing', { timeout: 20000 }, async t => {
  const path = join(scratch(t), 's'), pad = answer => answer + ' '.repeat(65536 - json(answer).length - 2);
  const seen = await server(t, (socket, message, answer) => socket.write(json(answer)), { path });
  const valet = await front(t, `unix:${path}:/mcp`);
  seen.onInitialize = (socket, answer) => {
    assert.equal(json(pad(answer)).length, 65536);
    process.kill(valet.pid, 'SIGSTOP');
    socket.write(json(pad(answer)) + none(500), () => setTimeout(() => process.kill(valet.pid, 'SIGCONT'), 100));
    seen.surplus = true;
  };
  assert.equal(textOf((await call(valet, 'x', {})).result), 'answer 1');
  assert.ok(seen.surplus);
});

// What the server did not read it cannot have done.
test('a request that a kept connection did not bring to the server is sent again, one that it did is not', { timeout: 20000 }, async t => {
  const seen = await server(t, (socket, message, answer) => {
    if (message.params.name === 'closes') socket.end();
    else socket.write(json(answer));
  });
  const valet = await front(t, at(seen));
  await call(valet, 'x', {});
  for (const socket of seen.sockets) socket.pause();
  const before = seen.connections, second = call(valet, 'x', {});
  await sleep(200);
  for (const socket of seen.sockets) socket.resetAndDestroy();
  assert.equal(textOf((await second).result), 'answer 2');
  assert.equal(seen.connections, before + 1);
  const { error } = await call(valet, 'closes', {});
  assert.match(error.message, /lost and may have had effects|without a response/);
  await sleep(300);
  assert.equal(seen.calls, 3);
});

for (const [name, bytes, words] of [
  ['garbage', 'SSH-2.0-OpenSSH_9.2\r\n\r\n', /no HTTP\/1\.1/],
  ['half a body', 'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{', /in the middle/],
  ['half a head', 'HTTP/1.1 200 OK\r\nContent-', /in the middle/],
])
  test(`${name} is no response`, { timeout: 20000 }, async t => {
    const seen = await server(t, socket => socket.end(bytes));
    const valet = await front(t, at(seen));
    assert.match((await call(valet, 'x', {})).error.message, words);
    assert.equal(seen.calls, 1);
  });

test('a large request is written as the server reads', { timeout: 20000 }, async t => {
  const text = 'x'.repeat(3 << 20);
  const seen = await server(t, (socket, message, answer) => {
    assert.equal(message.params.arguments.text, text);
    socket.write(json(answer));
  });
  const valet = await front(t, at(seen));
  await call(valet, 'x', { text });
  for (const socket of seen.sockets) { socket.pause(); setTimeout(() => socket.resume(), 300); }
  assert.equal(textOf((await call(valet, 'x', { text })).result), 'answer 2');
});

for (const host of ['127.0.0.1', '::1'])
  test(`localhost is ${host} too`, { timeout: 20000 }, async t => {
    let seen;
    try { seen = await server(t, (socket, message, answer) => socket.write(json(answer)), { port: 0, host }); }
    catch (error) { return t.skip(`no ${host} here: ${error.code}`); }
    const valet = await front(t, `http://localhost:${seen.port}/mcp`);
    assert.equal(textOf((await call(valet, 'x', {})).result), 'answer 1');
  });

test('a Unix socket, and one that nobody listens on', { timeout: 20000 }, async t => {
  const path = join(scratch(t), 's');
  await server(t, (socket, message, answer) => socket.write(json(answer)), { path });
  const valet = await front(t, `unix:${path}:/mcp`);
  assert.equal(textOf((await call(valet, 'x', {})).result), 'answer 1');
  const nobody = await front(t, `http://127.0.0.1:${await freePort()}/mcp`);
  assert.match((await call(nobody, 'x', {})).error.message, /Cannot connect to 127\.0\.0\.1:\d+: Connection refused/);
});

// A body is all that comes of its POST: nobody shall wait for more.
for (const [name, spoil] of Object.entries({
  'an error without an id': () => ({ jsonrpc: '2.0', id: null, error: { code: -32600, message: 'not understood' } }),
  'the answer to another request': ({ id, ...rest }) => ({ ...rest, id: id + 77 }),
}))
  test(`a body that holds ${name} ends its request`, { timeout: 20000 }, async t => {
    const seen = await server(t, (socket, message, answer) => socket.write(json(JSON.stringify(spoil(JSON.parse(answer))))));
    const valet = await front(t, at(seen));
    const started = Date.now();
    assert.match((await call(valet, 'x', {})).error.message, /answered with another id/);
    assert.ok(Date.now() - started < 3000);
  });
