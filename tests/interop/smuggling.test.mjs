// Requests that two readers could understand differently (RFC 9112 sections 2.2, 5, 6, 7, 11.2; RFC 9110 section 7.2). Each
// is followed at once by a good request on the same connection, which must not be answered where the end of the first one
// is in doubt.
import test from 'node:test';
import assert from 'node:assert/strict';
import { exchange, fixture, meta, serve, until } from './valet.mjs';

const server = ['node', fixture('raw.mjs')];
const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'server/discover', params: { _meta: meta() } });
const usual = { Host: 'localhost', 'Content-Type': 'application/json', Accept: '*/*', 'MCP-Protocol-Version': '2026-07-28', 'Mcp-Method': 'server/discover' };
const size = text => `${Buffer.byteLength(text).toString(16)}\r\n`;
const chunked = `${size(body)}${body}\r\n0\r\n\r\n`;

// A request with more field lines than the usual ones.
const request = (lines, text = '', first = 'POST /mcp HTTP/1.1') =>
  [first, ...Object.entries(usual).map(([name, value]) => `${name}: ${value}`), ...lines, '', text].join('\r\n');
const length = `Content-Length: ${body.length}`;
const good = request([length], body);
const coded = 'Transfer-Encoding: chunked';

// What is refused, with which status; the connection is closed, and what follows is not read as a request.
const refused = {
  'a length and a transfer coding': [request([length, coded], chunked), 400],
  'a transfer coding and a length': [request([coded, 'Content-Length: 3'], chunked), 400],
  'two lengths that differ': [request([length, 'Content-Length: 3'], body), 400],
  'two lengths that agree': [request([length, length], body), 400],
  'a list of lengths': [request([`Content-Length: ${body.length}, ${body.length}`], body), 400],
  'a length with a sign': [request([`Content-Length: +${body.length}`], body), 400],
  'a length in hexadecimal': [request([`Content-Length: 0x${body.length.toString(16)}`], body), 400],
  'a length that is no number': [request(['Content-Length: many'], body), 400],
  'a length beyond all numbers': [request(['Content-Length: 18446744073709551617'], body), 400],
  'a length that is empty': [request(['Content-Length:'], body), 400],
  'two transfer codings': [request([coded, 'Transfer-Encoding: identity'], chunked), 501],
  'a coding around the chunks': [request(['Transfer-Encoding: gzip, chunked'], chunked), 501],
  'chunks inside a coding': [request(['Transfer-Encoding: chunked, gzip'], chunked), 501],
  'a coding spelled with a control character': [request(['Transfer-Encoding: \x0bchunked'], chunked), 400],
  'a coding of another name': [request(['Transfer-Encoding: xchunked'], chunked), 501],
  'a transfer coding in HTTP/1.0': [request([coded], chunked, 'POST /mcp HTTP/1.0'), 400],
  'a space before the colon of a coding': [request(['Transfer-Encoding : chunked', length], body), 400],
  'a space before the colon of a length': [request([`Content-Length : ${body.length}`], body), 400],
  'a folded field': [request(['X-A: 1', ' 2', length], body), 400],
  'a folded coding': [request(['Transfer-Encoding:', ' chunked'], chunked), 400],
  'a folded first field': [good.replace('\r\n', '\r\n X: 1\r\n'), 400],
  'a bare LF after a field': [request([`X: 1\n${length}`], body), 400],
  'bare LF all the way': [good.replaceAll('\r\n', '\n'), 400],
  'a bare CR in a field': [request([`X: 1\r${coded}`, length], body), 400],
  'a NUL in a field': [request(['X: 1\0', length], body), 400],
  'a field without a name': [request([': 1', length], body), 400],
  'a field without a colon': [request(['X', length], body), 400],
  'a name that is no token': [request(['X(): 1', length], body), 400],
  'two hosts': [request(['Host: localhost', length], body), 400],
  'a host with a path': [good.replace('Host: localhost', 'Host: localhost/x'), 400],
  'no host': [good.replace('Host: localhost\r\n', ''), 400],
  'a space in the target': [request([length], body, 'POST /mcp x HTTP/1.1'), 400],
  'a tab in the request line': [request([length], body, 'POST\t/mcp HTTP/1.1'), 400],
  'another version': [request([length], body, 'POST /mcp HTTP/2.0'), 505],
  'no version': [request([length], body, 'POST /mcp'), 400],
  'a chunk size in decimal prefix': [request([coded], `0x${chunked}`), 400],
  'a chunk size with a sign': [request([coded], `+${chunked}`), 400],
  'a space before a chunk size': [request([coded], ` ${chunked}`), 400],
  'a chunk size that wraps': [request([coded], `1${'0'.repeat(16)}\r\n${body}`), 400],
  'an empty chunk size': [request([coded], `\r\n${body}`), 400],
  'a chunk shorter than its size': [request([coded], `${(body.length + 2).toString(16)}\r\n${body}\r\n0\r\n\r\n`), 400],
  'a chunk longer than its size': [request([coded], `${(body.length - 1).toString(16)}\r\n${body}\r\n0\r\n\r\n`), 400],
  'a chunk size ended by a bare LF': [request([coded], chunked.replace('\r\n', '\n')), 400],
  'a chunk size ended by a bare CR': [request([coded], chunked.replace('\r\n', '\r')), 400],
  'a bare LF in an extension': [request([coded], chunked.replace('\r\n', ';a=b\n\r\n')), 400],
  'an extension without end': [request([coded], `${size(body).trim()};${'x'.repeat(300)}\r\n${body}\r\n0\r\n\r\n`), 400],
  'a bare LF after the trailers': [request([coded], chunked.replace(/\r\n$/, '\n')), 400],
  'trailers without end': [request([coded], chunked.replace(/\r\n$/, 'T: x\r\n'.repeat(2000))), 400],
  'another path, with a body': [request([length], body, 'POST /other HTTP/1.1'), 404],
  'another method, with a body': [request([length], body, 'PUT /mcp HTTP/1.1'), 405],
  'another host, with a body': [good.replace('Host: localhost', 'Host: evil.example'), 403],
  'another content type, with a body': [good.replace('application/json', 'text/plain'), 415],
  'another expectation': [request(['Expect: tea', length], body), 417],
  'two method headers': [request(['Mcp-Method: tools/list', length], body), 400],
  'two authorizations': [request(['Authorization: a', 'authorization: b', length], body), 400],
};

// What is taken, and the next request with it.
const taken = {
  'a length with zeros': request([`Content-Length: 000${body.length}`], body),
  'chunks': request([coded], chunked),
  'chunks with extensions and trailers': request([coded], chunked.replace('\r\n', ';a="b";c \r\n').replace(/\r\n$/, 'T: x\r\n\r\n')),
  'a trailer that would frame another body': request([coded], chunked.replace(/\r\n$/, 'Content-Length: 10000\r\n\r\n')),
  'an empty line before the request': `\r\n${good}`,
  'spaces around a value': request([`Content-Length: \t ${body.length} \t`], body),
};

test('what is in doubt is refused, and nothing after it is read', { timeout: 60000 }, async t => {
  const valet = await serve(t, server);
  for (const [what, [bytes, status]] of Object.entries(refused)) {
    const { statuses, text, ended } = await exchange(valet, bytes + good);
    assert.deepEqual(statuses, [status], `${what}: ${text}`);
    assert.ok(ended, `${what}: the connection stays open`);
    assert.match(text, /^Connection: close\r$/m, what);
  }
  assert.deepEqual((await exchange(valet, good, 1)).statuses, [200]);
});

test('what is not in doubt is taken, and so is what follows', { timeout: 60000 }, async t => {
  const valet = await serve(t, server);
  for (const [what, bytes] of Object.entries(taken)) {
    const { statuses, text } = await exchange(valet, bytes + good, 2);
    assert.deepEqual(statuses, [200, 200], `${what}: ${text}`);
  }
  // Refused without a body: where the next request begins is plain.
  const empty = first => request([], '', first);
  assert.deepEqual((await exchange(valet, empty('GET /mcp HTTP/1.1') + good, 2)).statuses, [405, 200]);
  assert.deepEqual((await exchange(valet, empty('POST /other HTTP/1.1') + good, 2)).statuses, [404, 200]);
  // Pipelined: a request that the protocol refuses has been read to its end.
  assert.deepEqual((await exchange(valet, request(['Content-Length: 2'], '[]') + good, 2)).statuses, [400, 200]);
});

// A page of another site has its own name in Host, whatever address that name has by now, and in Origin.
test('a web page gets nowhere by rebinding a name', { timeout: 60000 }, async t => {
  const valet = await serve(t, server, { args: ['--admin', '127.0.0.1:0'] });
  const admin = { port: Number(await until(() => /"admin-started".*127\.0\.0\.1:(\d+)/.exec(valet.log)?.[1], 'the admin endpoint')) };
  const named = (host, ...lines) => request([...lines, length], body).replace('Host: localhost', `Host: ${host}`);
  const hosts = ['evil.example', '127.0.0.1.evil.example', 'localhost.evil.example', 'evil.example:80', '127.0.0.2', '0.0.0.0', '[::2]', '2130706433', '0x7f.1', 'xlocalhost'];
  for (const host of hosts) {
    assert.deepEqual((await exchange(valet, named(host))).statuses, [403], host);
    assert.deepEqual((await exchange(admin, `GET /metrics HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`)).statuses, [403], host);
  }
  for (const host of ['localhost', 'LOCALHOST:1', '127.0.0.1', `127.0.0.1:${valet.port}`, '[::1]:80']) assert.deepEqual((await exchange(valet, named(host), 1)).statuses, [200], host);
  assert.deepEqual((await exchange(valet, request([length], body, 'POST http://evil.example/mcp HTTP/1.1'))).statuses, [403]);
  const mine = `127.0.0.1:${valet.port}`;
  for (const origin of ['http://evil.example', 'null', `https://${mine}`, `http://${mine}.evil.example`, 'http://127.0.0.1', `http://localhost:${valet.port}`, `http://user@${mine}`, ''])
    assert.deepEqual((await exchange(valet, named(mine, `Origin: ${origin}`))).statuses, [403], origin);
  assert.deepEqual((await exchange(valet, named(mine, `Origin: http://${mine}`), 1)).statuses, [200]);
});

test('of two headers that say who the client is, none is believed', { timeout: 60000 }, async t => {
  const valet = await serve(t, server, { policy: 'version: 1\nprincipal: header:X-User\n' });
  for (const lines of [['X-User: a', 'X-User: b'], ['X-User: a', 'x-USER: a']]) {
    const { statuses, ended } = await exchange(valet, request([...lines, length], body) + good);
    assert.deepEqual([statuses, ended], [[400], true]);
  }
  assert.deepEqual((await exchange(valet, request(['X-User: a', length], body), 1)).statuses, [200]);
});

test('one byte at a time the verdict is the same', { timeout: 60000 }, async t => {
  const valet = await serve(t, server);
  for (const what of ['a length and a transfer coding', 'a folded field', 'a bare LF after a field', 'a chunk longer than its size']) {
    const { statuses } = await exchange(valet, refused[what][0], 1, { step: 1 });
    assert.deepEqual(statuses, [refused[what][1]], what);
  }
  assert.deepEqual((await exchange(valet, taken.chunks + good, 2, { step: 1 })).statuses, [200, 200]);
});
