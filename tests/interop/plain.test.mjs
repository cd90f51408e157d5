// The connections to a server on this machine: kept, tried again only when nothing was read, and bounded.
import test from 'node:test';
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { ask, call, freePort, scratch, serve, sleep, textOf, until } from './valet.mjs';
import { at, chunk, json, none, server, streamHead } from './bytes_server.mjs';

const front = (t, url, policy) => serve(t, [], { args: ['--upstream', url], policy });

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

// Nobody can tell whether a server that resets a connection has read, and done, what was on its way to it.
const engines = { 'plain sockets': at, libcurl: seen => `http://0.0.0.0:${seen.port}/mcp` };
const breaks = { 'is reset': socket => socket.resetAndDestroy(), ends: socket => socket.end() };
for (const [engine, url] of Object.entries(engines))
  for (const [how, break_] of Object.entries(breaks)) {
    test(`${engine}: a call on a kept connection that ${how} is lost, not sent again`, { timeout: 20000 }, async t => {
      const seen = await server(t, (socket, message, answer) => message.params.name === 'x' ? socket.write(json(answer)) : break_(socket));
      const valet = await front(t, url(seen));
      await call(valet, 'x', {});
      const { error } = await call(valet, 'acts', {});
      assert.equal(error.data.reason, 'lost');
      await sleep(300);
      assert.equal(seen.calls, 2);
      assert.equal(textOf((await call(valet, 'x', {})).result), 'answer 3');
    });

    test(`${engine}: a list on a kept connection that ${how} is asked for again, once`, { timeout: 20000 }, async t => {
      const seen = await server(t, (socket, message, answer) => socket.write(json(answer)));
      seen.onList = (socket, answer) => seen.lists === 1 ? break_(socket) : socket.write(json(answer));
      const valet = await front(t, url(seen));
      await call(valet, 'x', {});
      const before = seen.connections;
      assert.deepEqual((await ask(valet, 'tools/list')).result.tools, []);
      assert.deepEqual([seen.lists, seen.connections], [2, before + 1]);
      seen.onList = socket => break_(socket);
      assert.ok((await ask(valet, 'tools/list')).error);
      assert.equal(seen.lists, 4);
    });
  }

// Servers close what is idle: what they announce is held with a margin, and without a word a second must do.
for (const [announced, pause, kept] of [['', 500, true], ['', 2200, false], ['Keep-Alive: timeout=1\r\n', 0, false], ['Keep-Alive: max=9, timeout=5\r\n', 2200, true],
  ['Keep-Alive: timeout=2\r\n', 1500, false]])
  test(`idle for ${pause} ms, announced: ${announced.trim() || 'nothing'}`, { timeout: 20000 }, async t => {
    const seen = await server(t, (socket, message, answer) => socket.write(json(answer).replace('\r\n', `\r\n${announced}`)));
    const valet = await front(t, at(seen));
    await call(valet, 'x', {});
    await sleep(200); // the connections of the handshake are used up, or idle
    await call(valet, 'x', {});
    await sleep(pause);
    const between = seen.connections;
    await call(valet, 'x', {});
    assert.equal(seen.connections - between, kept ? 0 : 1);
    if (!kept) await until(() => seen.sockets.size <= 1, 'the idle ones to be closed', 4000);
  });

test('a server that closes without a word gets its calls on connections of their own, not on ones that it may be closing', { timeout: 20000 }, async t => {
  const seen = await server(t, (socket, message, answer) => socket.write(json(answer), () => setTimeout(() => socket.end(), 50)));
  const valet = await front(t, at(seen));
  await call(valet, 'x', {});
  await sleep(200);
  const before = seen.connections;
  for (let i = 2; i < 12; i++) assert.equal(textOf((await call(valet, 'x', {})).result), `answer ${i}`);
  assert.equal(seen.connections, before + 10);
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
