// Words of one side that would be commands to the other: in headers, in event streams, in the log.
import test from 'node:test';
import assert from 'node:assert/strict';
import { join } from 'node:path';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { ask, call, exchange, fixture, meta, post, recorded, scratch, serve, textOf, until } from './valet.mjs';

// An HTTP server of bare bytes. `answer(message, head)` gives the response as it stands, or a result for it. What it got is in
// `heads`, byte for byte.
async function upstream(t, answer, options = {}) {
  const heads = [];
  const server = net.createServer(socket => {
    let bytes = '';
    socket.on('error', () => {});
    socket.on('data', data => {
      bytes += data.toString('latin1');
      for (;;) {
        const end = bytes.indexOf('\r\n\r\n');
        const head = bytes.slice(0, end + 4);
        const length = Number(/^content-length: (\d+)\r$/im.exec(head)?.[1] ?? 0);
        if (end < 0 || bytes.length < head.length + length) return;
        const body = bytes.slice(head.length, head.length + length);
        bytes = bytes.slice(head.length + length);
        heads.push(head);
        const message = body ? JSON.parse(Buffer.from(body, 'latin1').toString()) : {};
        const said = answer(message, head);
        const text = typeof said === 'string' || said === undefined ? said : JSON.stringify({ jsonrpc: '2.0', id: message.id, result: said });
        socket.write(typeof said === 'string' ? Buffer.from(said, 'latin1') : text === undefined ? 'HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n'
          : `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
      }
    });
  }).listen(0, '127.0.0.1');
  await new Promise(resolve => server.on('listening', resolve));
  t.after(() => server.close());
  const valet = await serve(t, [], { ...options, args: ['--upstream', `http://127.0.0.1:${server.address().port}/mcp`] });
  return { valet, heads };
}

// The fields of a head. Fails if it has line ends of another kind than CRLF, or other control characters.
function fieldsOf(head) {
  assert.doesNotMatch(head.replaceAll('\r\n', ''), /[\0-\x08\x0a-\x1f\x7f]/, JSON.stringify(head));
  const fields = {};
  for (const line of head.trimEnd().split('\r\n').slice(1)) {
    const [, name, value] = /^([^ \t:]+):[ \t]*(.*?)[ \t]*$/.exec(line);
    (fields[name.toLowerCase()] ??= []).push(value);
  }
  return fields;
}

const encode = text => `=?base64?${Buffer.from(text).toString('base64')}?=`;
const decode = value => /^=\?base64\?.*\?=$/.test(value) ? Buffer.from(value.slice(9, -2), 'base64').toString() : value;
const names = ['a\r\nX-Evil: 1', 'a\nb', 'a\rb', 'a\0b', 'a\x7fb', 'a\x1bb', 'é', '漢字', 'a\u2028b', ' before', 'after ', '\t', '', '=?base64?YQ==?=',
  '=?base64?', 'plain', 'a:b;c', 'x'.repeat(5000)];

test('names in the headers of a modern server', { timeout: 60000 }, async t => {
  const { valet, heads } = await upstream(t, ({ params }) => ({ resultType: 'complete', content: [], contents: [], messages: [], ttlMs: 0, cacheScope: 'private', _meta: { said: params.name ?? params.uri } }),
    { policy: 'version: 1\nupstream: { era: modern }\n' });
  for (const name of names)
    for (const [method, member] of [['tools/call', 'name'], ['prompts/get', 'name'], ['resources/read', 'uri']]) {
      heads.length = 0;
      const { result, text } = await ask(valet, method, { [member]: name }, { headers: { 'mcp-name': encode(name) } });
      if (name.includes('\0')) { // no rule of the policy can name it
        assert.match(text, /Not found/);
        assert.equal(heads.length, 0);
        continue;
      }
      assert.equal(result?._meta.said, name, text);
      const fields = fieldsOf(heads.at(-1));
      assert.equal(fields['mcp-name']?.length, 1, `${method} ${JSON.stringify(name)}: ${heads.at(-1)}`);
      assert.equal(decode(fields['mcp-name'][0]), name);
      assert.deepEqual(fields['mcp-method'], [method]);
      assert.equal(fields['x-evil'], undefined);
    }
  // A method and a version are mirrored, too.
  const evil = 'tools/\r\nX-Evil: 1';
  heads.length = 0;
  await ask(valet, evil, { _meta: { 'io.modelcontextprotocol/protocolVersion': '2026\nX-Evil: 2' } },
    { headers: { 'mcp-method': encode(evil), 'mcp-protocol-version': encode('2026\nX-Evil: 2') } });
  assert.equal(decode(fieldsOf(heads.at(-1))['mcp-method'][0]), evil);
  assert.equal(fieldsOf(heads.at(-1))['x-evil'], undefined);
});

test('names in the headers of a client', { timeout: 60000 }, async t => {
  const valet = await serve(t, ['node', fixture('raw.mjs')]);
  const send = (name, header) => {
    const text = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: {}, _meta: meta() } });
    return exchange(valet, `POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: */*\r\nMCP-Protocol-Version: 2026-07-28\r\n` +
      `Mcp-Method: tools/call\r\nMcp-Name: ${header}\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${Buffer.from(text).toString('latin1')}`);
  };
  const good = [['echo', 'echo'], ['echo', encode('echo')], ['echo', ' \techo\t ']];
  const bad = [['echo', encode('echo') + 'x'], ['echo', '=?base64?ZWNobw?='], ['echo', '=?base64?ZWNobw==?= x'], ['echo', '=?BASE64?ZWNobw==?='], ['echo', '=?base64?ZWNo\tbw==?='],
    ['echo', '=?base64?ZWNoby==?='], ['echo', encode('echo\0')], ['echo', 'Echo'], ['echo', '"echo"'], ['echo', 'ech%6F'], ['é', '\xc3\xa9'], ['é', '\xe9'], ['echo', '']];
  for (const [name, header] of good) assert.deepEqual((await send(name, header)).statuses, [200], header);
  for (const [name, header] of bad) {
    const { statuses, text } = await send(name, header);
    assert.deepEqual(statuses, [400], header);
    assert.match(text, /"code":-32020/, header);
  }
  for (const header of ['echo\0', 'echo\r', 'ec\x01ho', 'echo\n']) assert.deepEqual((await send('echo', header)).statuses, [400], JSON.stringify(header));
});

test('as many headers for arguments as a head holds leave none of ours out', { timeout: 60000 }, async t => {
  const { valet, heads } = await upstream(t, () => ({ resultType: 'complete', content: [] }), { policy: 'version: 1\nupstream: { era: modern, forward_headers: [ X-Tenant ] }\n' });
  const many = Object.fromEntries([...Array(85).keys()].map(n => [`mcp-param-p${n}`, String(n)]));
  await call(valet, 'n', {}, {}, { headers: { ...many, 'x-tenant': 'blue' } });
  const fields = fieldsOf(heads.at(-1));
  assert.deepEqual([fields['mcp-name'], fields['mcp-method'], fields['x-tenant'], fields['mcp-param-p84']], [['n'], ['tools/call'], ['blue'], ['84']]);
});

// There are readers of JSON that take the first of two members, and others to whom `Name` is `name` (Go's encoding/json).
test('what the policy hides has no other spelling', { timeout: 60000 }, async t => {
  const hide = 'rules:\n  - match: { tool: "secret*" }\n    hide: true\n';
  const params = ['"name":"secret","name":"n"', '"name":"n","name":"secret"', '"name":"n","Name":"secret"', '"name":"n","\\u004eAME":"secret"', '"name":"secret\\u0000"', '"name":"secret"'];
  const whole = ['"method":"ping","Method":"tools/call"', '"method":"ping","method":"tools/call"'];
  for (const era of ['legacy', 'modern']) {
    const { valet, heads } = await upstream(t, message => era === 'legacy' ? legacy(message) : { resultType: 'complete', supportedVersions: ['2026-07-28'], capabilities: { tools: {} } }, { policy: `version: 1\nupstream: { era: ${era} }\n${hide}` });
    const said = [];
    for (const name of params)
      for (const header of ['n', 'secret'])
        said.push(await post(valet, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{${name},"_meta":${JSON.stringify(meta())}}}`,
          { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': header }));
    // A legacy client, whose messages pass as they are.
    const opened = await post(valet, JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'l', version: '1' } } }));
    assert.ok(opened.headers['mcp-session-id'], `${era} ${opened.status} ${opened.text}`);
    const session = { 'mcp-session-id': opened.headers['mcp-session-id'], 'mcp-protocol-version': '2025-06-18' };
    heads.length = 0;
    for (const name of params) said.push(await post(valet, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{${name}}}`, session));
    for (const method of whole) said.push(await post(valet, `{"jsonrpc":"2.0","id":1,${method},"params":{"name":"secret"}}`, session));
    for (const { text, status } of said) assert.match(text, /"error":\{"code":-32(602|600|020)/, `${era} ${status} ${text}`);
    assert.ok(heads.every(head => /^GET /.test(head)), `${era}: ${heads}`);
  }
});

const legacy = ({ method }) => method === 'initialize'
  ? { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'bare', version: '1' } } : method === 'tools/call' ? { content: [] } : undefined;

test('headers that the policy forwards to a legacy server', { timeout: 60000 }, async t => {
  const { valet, heads } = await upstream(t, legacy, { policy: 'version: 1\nupstream: { forward_headers: [ X-Tenant, X-Empty ] }\n' });
  const text = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'a\r\nX-Evil: 1', arguments: {}, _meta: meta() } });
  const send = lines => exchange(valet, `POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: */*\r\nMCP-Protocol-Version: 2026-07-28\r\n` +
    `Mcp-Method: tools/call\r\nMcp-Name: ${encode('a\r\nX-Evil: 1')}\r\n${lines}Content-Length: ${text.length}\r\n\r\n${text}`);
  assert.deepEqual((await send('X-Tenant: \xff \t"b"; c\r\nAuthorization: Bearer \xe9\r\nX-Empty:\r\nX-Other: no\r\n')).statuses, [200]);
  const fields = fieldsOf(heads.find(head => /x-tenant/i.test(head)));
  assert.deepEqual(fields['x-tenant'], ['\xff \t"b"; c']);
  assert.deepEqual(fields.authorization, ['Bearer \xe9']);
  for (const head of heads)
    for (const name of ['x-evil', 'x-other', 'mcp-name', 'mcp-method']) assert.equal(fieldsOf(head)[name], undefined);
  heads.length = 0;
  assert.deepEqual((await send('X-Tenant: a\r\nX-Tenant: b\r\n')).statuses, [200]);
  assert.ok(heads.every(head => !/x-tenant/i.test(head)), 'of two it is open which counts');
  for (const bytes of ['X-Tenant: a\rX-Evil: 1\r\n', 'X-Tenant: a\nX-Evil: 1\r\n', 'X-Tenant: a\0\r\n']) assert.deepEqual((await send(bytes)).statuses, [400]);
});

test('headers of a server on their way to the client', { timeout: 60000 }, async t => {
  for (const evil of ['Bearer a\rX-Evil: 1', 'Bearer a\r\rb', 'Bearer a\x0bb', 'Bearer a\x1b[31m', 'Bearer \xff']) {
    const { valet } = await upstream(t, () => `HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: ${evil}\r\nMcp-Session-Id: ${evil}\r\nContent-Length: 0\r\n\r\n`);
    const text = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list', params: { _meta: meta() } });
    const { text: all, statuses } = await exchange(valet, `POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: */*\r\n` +
      `MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\nContent-Length: ${text.length}\r\n\r\n${text}`);
    assert.equal(statuses.length, 1, all);
    assert.equal(fieldsOf(all.slice(0, all.indexOf('\r\n\r\n') + 4))['x-evil'], undefined);
  }
});

test('a redirect is not followed, whoever it leads to', { timeout: 60000 }, async t => {
  const other = [];
  const elsewhere = net.createServer(socket => socket.on('data', data => { other.push(String(data)); socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'); })).listen(0, '127.0.0.1');
  await new Promise(resolve => elsewhere.on('listening', resolve));
  t.after(() => elsewhere.close());
  for (const status of [301, 302, 303, 307, 308]) {
    const { valet } = await upstream(t, () => `HTTP/1.1 ${status} Elsewhere\r\nLocation: http://127.0.0.1:${elsewhere.address().port}/\r\nContent-Length: 0\r\n\r\n`);
    const { error } = await ask(valet, 'tools/list', {}, { headers: { authorization: 'Bearer secret' } });
    assert.match(error.message, new RegExp(`HTTP ${status}`));
  }
  assert.deepEqual(other, []);
});

test('metadata: only metadata, only for this machine, and nothing but its type of its headers', { timeout: 60000 }, async t => {
  const { valet, heads } = await upstream(t, (message, head) => `HTTP/1.1 200 OK\r\nContent-Type: application/json${head.includes('/evil ') ? '\rX-Evil: 1' : ''}\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\n{}`);
  const get = (path, more = '', host = 'localhost') => exchange(valet, `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n${more}\r\n`);
  for (const [path, status] of [['mcp', 200], ['evil', 502]]) {
    const { statuses, text } = await get(`/.well-known/oauth-protected-resource/${path}`);
    assert.deepEqual(statuses, [status]);
    const fields = fieldsOf(text.slice(0, text.indexOf('\r\n\r\n') + 4));
    for (const name of ['x-evil', 'set-cookie']) assert.equal(fields[name], undefined);
  }
  assert.equal(heads.length, 2);
  const root = '/.well-known/oauth-protected-resource';
  for (const path of ['/../../admin', '/..', '/./../../admin', '/%2e%2e/%2e%2e/admin', '/.%2E/%2e./admin', '/a/../../../admin', '/..%2f..%2fadmin', '/..\\..\\admin'])
    assert.deepEqual((await get(root + path)).statuses, [404], path);
  assert.deepEqual((await get(`${root}/mcp`, '', 'evil.example')).statuses, [403]);
  assert.deepEqual((await get(`${root}/mcp`, 'Origin: http://evil.example\r\n')).statuses, [403]);
  assert.deepEqual((await get(`http://evil.example${root}/mcp`)).statuses, [403]);
  assert.equal(heads.length, 2, 'nothing else reached the server');
});

// An event stream as RFC-abiding clients read it: lines end with CRLF, LF or CR (HTML living standard 9.2.6).
function events(text) {
  return text.split(/(?:\r\n|\n|\r)(?:\r\n|\n|\r)/).filter(Boolean).map(block => {
    const event = {};
    for (const line of block.split(/\r\n|\n|\r/)) {
      const [, name, value] = /^([^:]*):? ?(.*)$/su.exec(line);
      if (name) event[name] = name in event ? `${event[name]}\n${value}` : value;
    }
    return event;
  });
}

async function assertEvents(valet) {
  const { text, headers } = await call(valet, 'sse', {}, { _meta: { progressToken: 'p' } });
  assert.match(headers['content-type'], /^text\/event-stream/);
  const all = events(text);
  assert.equal(all.length, 2, JSON.stringify(text));
  assert.ok(all.every(event => event.event === 'message' && Object.keys(event).sort().join() === 'data,event'), JSON.stringify(all));
  const [progress, last] = all.map(event => JSON.parse(event.data));
  assert.equal(progress.params.message, 'a\u2028data: {}\u2029\u0085b\n\ndata: {}\r\r');
  assert.equal(textOf(last.result), '\u2028event: message\n\n');
}

test('line ends in payloads make no events: a server on standard input and output', { timeout: 60000 }, async t =>
  assertEvents(await serve(t, ['node', fixture('hostile.mjs')])));

test('line ends in payloads make no events: an HTTP server', { timeout: 60000 }, async t => {
  const stream = events => { const text = Buffer.from(events).toString('latin1'); return `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: ${text.length}\r\n\r\n${text}`; };
  const { valet } = await upstream(t, message => message.method !== 'tools/call' ? legacy(message) : stream(
    // Data of several lines: the line ends stand between tokens. Fields of other names, and comments, are nobody's business.
    `id: 1\revent: message\rdata: {"jsonrpc":"2.0",\rdata: "method":"notifications/progress",\rdata:\rdata: "params":{"progressToken":${JSON.stringify(message.params._meta?.progressToken)},"progress":1,\r` +
    `data: "message":"a\u2028data: {}\u2029\u0085b\\n\\ndata: {}\\r\\r"}}\r: comment\rx: y\r\r` +
    `event: evil\ndata: {"jsonrpc":"2.0","id":${message.id},"result":{"content":[]}}\n\n` +
    `data: {"jsonrpc":"2.0","id":${message.id},\r\ndata: "result":{"content":[{"type":"text","text":"\u2028event: message\\n\\n"}]}}\r\n\r\n`));
  await assertEvents(valet);
});

test('line ends in the JSON of a client make no lines for a server', { timeout: 60000 }, async t => {
  const record = join(scratch(t), 'record');
  const valet = await serve(t, ['node', fixture('raw.mjs')], { env: { RECORD: record } });
  const text = `{"jsonrpc":"2.0",\r\n"id":\n1,\r"method":"tools/call","params":{\n"name":\n"echo","arguments":\n{"a":\r\n[\n1,\r2]}\n,"_meta":${JSON.stringify(meta(), null, '\n ')}}\n}\r\n`;
  const { text: answer } = await post(valet, text, { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'echo' });
  assert.deepEqual(JSON.parse(answer).result.structuredContent, { a: [1, 2] });
  const methods = recorded(record).map(line => JSON.parse(line).method);
  assert.equal(methods.filter(method => method === 'tools/call').length, 1, methods.join());
});

const evils = ['\n2026-01-01T00:00:00.000Z error forged: yes', '\r\n{"level":"error","event":"forged","text":"yes"}', '" session=s99 call="c', '\\x0a\\"',
  '\x1b]0;title\x07\x1b[2J\x1b[31m\x9b31m\x9d0;t\x9c\u0085\u2028\u2029forged\u202egnp.exe\x08\x7f'];

for (const format of ['text', 'json'])
  test(`the log as ${format}: a line is a line, whoever's words are in it`, { timeout: 60000 }, async t => {
    for (const evil of evils) {
      const valet = await serve(t, ['node', fixture('hostile.mjs')], { args: ['--log-format', format], env: { EVIL: evil, NODE_OPTIONS: '' } }); // nobody judges what it gets
      await call(valet, evil, {}, { _meta: { 'io.modelcontextprotocol/clientInfo': { name: evil, version: evil }, traceparent: evil, 'io.modelcontextprotocol/logLevel': 'debug' } },
        { headers: { 'mcp-name': encode(evil), authorization: `Bearer ${Buffer.from(evil).toString('base64')}` } });
      await call(valet, 'nothing', {}, { requestState: evil });
      await ask(valet, 'prompts/get', { name: evil }, { headers: { 'mcp-name': encode(evil) } });
      await ask(valet, 'resources/read', { uri: `x:/${evil}` }, { headers: { 'mcp-name': encode(`x:/${evil}`) } });
      await post(valet, `{"jsonrpc":"2.0","id":1,"method":${JSON.stringify(evil)}}`);
      await until(() => /server-stderr[^]*(server-noise|bad-message)/.test(valet.log), `the server's words:\n${valet.log}`);
      await sleep(50);
      assert.doesNotMatch(valet.log, /[\0-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]/u, JSON.stringify(valet.log));
      for (const line of valet.log.trimEnd().split('\n')) {
        if (format === 'json') {
          const { time, level, event, text, ...rest } = JSON.parse(line);
          assert.ok(time && level && event !== 'forged' && typeof text === 'string', line);
          assert.notEqual(rest.session, 's99', line);
        } else {
          // Members are bare words, or quoted with every quote in them escaped.
          const match = /^\d{4}-\d\d-\d\dT[\d:.]+Z (error|warning|info|debug) ([a-z-]+)((?: (?:session|call|subject|trace)=(?:[^ "=:]+|"(?:[^"\\]|\\.)*"))*): /.exec(line);
          assert.ok(match && match[2] !== 'forged', line);
          assert.ok(!/ session=s99/.test(match[3].replaceAll(/"(?:[^"\\]|\\.)*"/g, '')), line);
        }
      }
      valet.child.kill('SIGKILL');
    }
  });
