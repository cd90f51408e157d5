// Load beyond the limits: each bounded, each with an error that says so, and whoever comes after is served at once.
import test from 'node:test';
import assert from 'node:assert/strict';
import net from 'node:net';
import http from 'node:http';
import { readFileSync } from 'node:fs';
import { answerAll, ask, call, descriptors, exchange, fixture, meta, post, retry, serve, sleep, textOf, until } from './valet.mjs';

const raw = ['node', fixture('raw.mjs')], asker = ['node', fixture('asker.mjs')];
const as = name => ({ headers: { authorization: `Bearer ${name}` } });
const discover = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'server/discover', params: { _meta: meta() } });
const head = more => `POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: server/discover\r\n${more}\r\n`;
const good = head(`Content-Length: ${discover.length}\r\n`) + discover;
const resident = pid => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;

async function isServed(valet, address) {
  assert.deepEqual((await exchange(valet, good, 1, { address })).statuses, [200]);
}

function open(valet, address = '127.0.0.1') {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ port: valet.port, host: '127.0.0.1', localAddress: address }, () => resolve(socket));
    socket.on('error', reject);
  });
}

async function openMany(t, valet, count, address) {
  const sockets = await Promise.all(Array.from({ length: count }, () => open(valet, address)));
  t.after(() => sockets.forEach(socket => socket.destroy()));
  return sockets;
}

for (const [limit, others] of [['connections', '127.0.0.1'], ['connections_per_address', '127.0.0.2']])
  test(`too many connections (limits.${limit})`, { timeout: 60000 }, async t => {
    const valet = await serve(t, raw, { policy: `version: 1\nlimits: { ${limit}: 50 }\n` });
    const before = descriptors(valet.pid);
    const crowd = await openMany(t, valet, 50);
    await until(() => !descriptors(valet.pid) || descriptors(valet.pid) >= before + 50, 'the crowd to be let in');
    for (let i = 0; i < 20; i++) {
      const { statuses, ended } = await exchange(valet, good);
      assert.deepEqual([statuses, ended], [[503], true]);
    }
    assert.match(valet.log, new RegExp(`"event":"connection-refused".*limits.${limit}`));
    // A flood of connections is no flood of lines.
    for (let i = 0; i < 400; i += 50) for (const { statuses } of await Promise.all([...Array(50)].map(() => exchange(valet, good)))) assert.deepEqual(statuses, [503]);
    assert.ok(valet.log.match(/connection-refused/g).length < 200, valet.log.match(/connection-refused/g).length);
    if (others !== '127.0.0.1') await isServed(valet, others);
    crowd.forEach(socket => socket.destroy());
    await until(() => !descriptors(valet.pid) || descriptors(valet.pid) < before + 50, 'the crowd to be gone');
    await isServed(valet);
  });

test('slow senders', { timeout: 40000 }, async t => {
  const valet = await serve(t, raw, { policy: 'version: 1\ndeadlines: { head: 500ms, idle_connection: 500ms }\n' });
  // Byte after byte does not prolong it.
  const slowly = (first, bytes, pause) => new Promise((resolve, reject) => {
    const began = Date.now();
    const socket = net.connect(valet.port, '127.0.0.1');
    socket.write(first);
    let at = 0, text = '';
    const timer = setInterval(() => socket.writable && socket.write(bytes[at++ % bytes.length]), pause);
    socket.on('data', data => { text += data; });
    socket.on('error', () => {});
    socket.on('close', () => { clearInterval(timer); resolve({ text, ms: Date.now() - began }); });
    setTimeout(reject, 20000, new Error('not ended')).unref();
  });
  const [headers, body, chunks, nothing] = await Promise.all([slowly('POST ', 'X', 20), slowly(head('Content-Length: 1000000\r\n'), ' ', 5),
    slowly(head('Transfer-Encoding: chunked\r\n'), '1\r\n \r\n', 5), slowly('', '', 100000)]);
  assert.match(headers.text, /^HTTP\/1.1 408 .*deadlines\.head/s);
  assert.ok(headers.ms < 3000, `${headers.ms} ms`);
  for (const { text, ms } of [body, chunks]) {
    assert.match(text, /^HTTP\/1.1 408 .*limits\.body_rate/s);
    assert.ok(ms > 4000 && ms < 15000, `${ms} ms`);
  }
  assert.equal(nothing.text, '');
  await isServed(valet);
});

test('huge heads and huge bodies', { timeout: 60000 }, async t => {
  const valet = await serve(t, raw, { policy: 'version: 1\nlimits: { head: 8KiB, message: 1MiB }\n' });
  await isServed(valet);
  const before = resident(valet.pid);
  const long = 'x'.repeat(9000), million = ' '.repeat(1 << 20);
  const cases = {
    'a long field': [head(`X: ${long}\r\n`), 431], 'a long line without end': [`POST /mcp HTTP/1.1\r\nX: ${'y'.repeat(1 << 20)}`, 431],
    'a long target': [`POST /${long} HTTP/1.1\r\nHost: localhost\r\n\r\n`, 431], 'many fields': [head('x: y\r\n'.repeat(200)), 431],
    'a long body, as it says': [head('Content-Length: 1048577\r\n'), 413], 'a long body, in its length': [head('Content-Length: 9223372036854775807\r\n'), 413],
    'a long body in chunks': [head('Transfer-Encoding: chunked\r\n') + `100000\r\n${million}\r\n1\r\n \r\n`, 413],
    'a chunk longer than all memory': [head('Transfer-Encoding: chunked\r\n') + `fffffffffffffff\r\n${million} `, 413],
  };
  for (const [what, [bytes, status]] of Object.entries(cases)) {
    const { statuses, ended } = await exchange(valet, bytes);
    assert.deepEqual([statuses, ended], [[status], true], what);
  }
  // A client that waits for permission does not send what is refused.
  assert.deepEqual((await exchange(valet, head('Content-Length: 1048577\r\nExpect: 100-continue\r\n'))).statuses, [413]);
  assert.deepEqual((await exchange(valet, head(`Content-Length: ${discover.length}\r\nExpect: 100-continue\r\n`), 1)).statuses, [100]);
  await isServed(valet);
  assert.ok(resident(valet.pid) - before < 64 << 20, `${resident(valet.pid) - before} bytes more`);
});

test('deep JSON', { timeout: 60000 }, async t => {
  const valet = await serve(t, raw);
  const headers = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'echo' };
  for (const deep of ['['.repeat(1 << 20), '{"a":'.repeat(200000), '['.repeat(100000) + ']'.repeat(100000)]) {
    const { status, text } = await post(valet, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":${deep},"_meta":{}}}`, headers);
    assert.equal(status, 400);
    assert.equal(JSON.parse(text).error.code, -32700);
  }
  await isServed(valet);
});

// An open subscriptions/listen that reads nothing, or everything.
function listen(valet, { address = '127.0.0.1', reads = true } = {}) {
  return new Promise((resolve, reject) => {
    const text = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'subscriptions/listen', params: { notifications: { toolsListChanged: true }, _meta: meta() } });
    const request = http.request({ host: '127.0.0.1', port: valet.port, localAddress: address, path: '/mcp', method: 'POST', agent: false, headers: {
      'content-type': 'application/json', accept: '*/*', 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'subscriptions/listen' } }, response => {
      response.on('error', () => {});
      let text = '';
      if (reads) response.on('data', data => { text += data; });
      resolve({ status: response.statusCode, end: () => request.destroy(), told: () => text.split('list_changed').length - 1 });
    });
    request.on('error', reject);
    request.end(text);
  });
}

test('a flood of listeners', { timeout: 60000 }, async t => {
  const valet = await serve(t, asker, { policy: 'version: 1\nlimits: { connections_per_address: 300, exchanges: 400 }\n',
    env: { ASAN_OPTIONS: 'quarantine_size_mb=8' } }); // what is freed is to be counted as that
  await call(valet, 'plain');
  await sleep(200); // its connection is gone
  const before = resident(valet.pid), open = descriptors(valet.pid);
  const flood = await Promise.all([...Array(320)].map(() => listen(valet)));
  assert.equal(flood.filter(({ status }) => status === 200).length, 300);
  assert.equal(flood.filter(({ status }) => status === 503).length, 20);
  // Another address is served, until the exchanges of all are used up, and that is said.
  await isServed(valet, '127.0.0.2');
  const more = await Promise.all([...Array(100)].map(() => listen(valet, { address: '127.0.0.2' })));
  assert.ok(more.every(({ status }) => status === 200));
  const { statuses, text } = await exchange(valet, good, 1, { address: '127.0.0.3' });
  assert.deepEqual(statuses, [503]);
  assert.match(text, /limits\.exchanges/);
  more.forEach(({ end }) => end());
  await until(async () => (await exchange(valet, good, 1, { address: '127.0.0.3' })).statuses[0] === 200, 'an exchange to be free', 2000);
  const change = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'change', arguments: {}, _meta: meta() } });
  await exchange(valet, `POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: change\r\nContent-Length: ${change.length}\r\n\r\n${change}`, 1, { address: '127.0.0.2' });
  await until(() => flood.filter(({ told }) => told() === 1).length === 300, 'every listener to be told');
  flood.forEach(({ end }) => end());
  await until(() => descriptors(valet.pid) <= open + 8, 'the descriptors to be given back');
  await isServed(valet);
  assert.ok(resident(valet.pid) - before < 64 << 20, `${resident(valet.pid) - before} bytes more`);
});

test('slow readers', { timeout: 60000 }, async t => {
  const valet = await serve(t, raw, { policy: 'version: 1\nlimits: { downstream_queue: 1MiB, message: 4MiB }\ndeadlines: { idle_connection: 1s }\n' });
  await isServed(valet);
  const before = resident(valet.pid);
  const args = `{"s":"${'x'.repeat(3 << 20)}"}`;
  const text = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":${args},"_meta":${JSON.stringify(meta())}}}`;
  const bytes = `POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\nContent-Length: ${text.length}\r\n\r\n${text}`;
  // They ask three times for large results, and read none of them.
  const sockets = await openMany(t, valet, 10);
  const ends = sockets.map(socket => new Promise(resolve => { socket.on('error', resolve); socket.on('close', resolve); }));
  for (const socket of sockets) { socket.pause(); socket.write(bytes + bytes + bytes); }
  await isServed(valet, '127.0.0.2');
  await until(() => descriptors(valet.pid) < 30, 'those who read nothing to be left', 20000);
  assert.ok(resident(valet.pid) - before < 200 << 20, `${resident(valet.pid) - before} bytes more`);
  sockets.forEach(socket => socket.destroy());
  await Promise.all(ends);
  await isServed(valet);
});

test('one principal parks as many calls as it may: others are not harmed', { timeout: 60000 }, async t => {
  const valet = await serve(t, asker, { policy: 'version: 1\nlimits: { parked_per_principal: 8, sessions_per_principal: 3, waiting: 16 }\ndeadlines: { wait: 5s }\n' });
  await call(valet, 'plain', {}, {}, as('bob'));
  const parked = [];
  for (let i = 0; i < 8; i++) parked.push((await call(valet, 'confirm', { what: `m${i}` }, {}, as('mallory'))).result);
  assert.ok(parked.every(result => result?.resultType === 'input_required'));
  const surplus = await call(valet, 'confirm', { what: 'm8' }, {}, as('mallory'));
  assert.equal(surplus.error?.code, -32603, surplus.text);
  assert.match(surplus.error.message, /limits\.parked_per_principal/);
  // All the sessions that one may have, and all the calls that may wait in them.
  const storm = Promise.all([...Array(40)].map((_, i) => call(valet, 'stubborn', { ms: 1000 }, {}, { ...as('mallory'), capabilities: [{}, { roots: {} }, { sampling: {} }, { elicitation: {} }][i % 4] })));
  // He would be refused as busy, did he wait behind them.
  const { result } = await call(valet, 'confirm', { what: 'b' }, {}, as('bob'));
  const done = await retry(valet, 'confirm', { what: 'b' }, result, answerAll(result, { action: 'accept', content: { sure: 'y' } }), as('bob'));
  assert.equal(textOf(done.result), 'deleted b y');
  const refused = (await storm).filter(({ error }) => error);
  assert.ok(refused.length > 0);
  for (const { error } of refused) assert.ok(['busy', 'unavailable'].includes(error.data?.reason), JSON.stringify(error));
  // What was parked is there still, and a place is free again once it is used.
  const [first] = parked;
  const last = await retry(valet, 'confirm', { what: 'm0' }, first, answerAll(first, { action: 'accept', content: { sure: 'y' } }), as('mallory'));
  assert.equal(textOf(last.result), 'deleted m0 y');
  assert.equal((await call(valet, 'confirm', { what: 'm9' }, {}, as('mallory'))).result?.resultType, 'input_required');
});
