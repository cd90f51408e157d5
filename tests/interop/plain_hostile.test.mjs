// What a broken or hostile server can answer over plain sockets. Whatever it is, the client gets the right answer or a clear error
// within the deadline, nobody gets the answer to another's request, and the next call is served.
import test from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { call, descriptors, scratch, serve, sleep, textOf, until } from './valet.mjs';
import { at, chunk, json, none, server, streamHead } from './bytes_server.mjs';

const policy = 'version: 1\ndefaults: { call: 1500ms }\nlimits: { message: 1MiB }\ndeadlines: { grace: 200ms, connect: 2s }\n';
const front = (t, url, text = policy) => serve(t, [], { args: ['--upstream', url], policy: text });
const status = '200 OK', head = (fields, line = `HTTP/1.1 ${status}`) => `${line}\r\nContent-Type: application/json\r\n${fields}\r\n`;
const chunked = (body, fields = '') => head(`Transfer-Encoding: chunked\r\n${fields}`) + body;
const all = answer => `${chunk(answer)}0\r\n\r\n`;
const event = answer => `data: ${answer}\n\n`;
const sse = (answer, type = 'text/event-stream') => json(event(answer)).replace('application/json', type);
const sized = (answer, length) => head(`Content-Length: ${length}\r\n`) + answer;
const reset = socket => socket.remoteAddress ? socket.resetAndDestroy() : socket.destroy(); // there is no reset of a Unix socket
const endless = text => socket => { const go = () => { while (socket.writable && socket.write(text)); }; socket.on('drain', go); go(); };
const answered = /^right$/, noHttp = /no HTTP\/1\.1/, cut = /middle of its response/, silent = /without a response/, late = /deadline|too long|in time/i;

// What is sent for an answer (a function does it itself, an array ends the connection behind it), and what the client gets of it.
const cases = {
  'eight interim responses': [a => 'HTTP/1.1 100 Continue\r\n\r\n'.repeat(8) + json(a), answered],
  'nine of them': [a => 'HTTP/1.1 102 Processing\r\n\r\n'.repeat(9) + json(a), noHttp],
  'interim responses without end': [() => endless('HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n'), noHttp],
  'a switch of protocols': [() => 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n', noHttp],
  'no length': [a => [head('') + a], answered],
  'two lengths that differ': [a => head(`Content-Length: 5\r\nContent-Length: ${a.length}\r\n`) + a, noHttp],
  'two lengths in a list': [a => sized(a, `${a.length}, ${a.length}`), noHttp],
  'a length beyond 64 bits': [a => sized(a, '99999999999999999999'), noHttp],
  'a negative length': [a => sized(a, '-1'), noHttp],
  'a length with a sign': [a => sized(a, `+${a.length}`), noHttp],
  'a length that is too long': [a => [sized(a, a.length + 1)], cut],
  'a length that is too long, and nothing more': [a => sized(a, a.length + 1), late],
  'a length that is too short': [a => sized(a, a.length - 3), /without a response|another id/],
  'no body at all': [() => none(200), silent],
  'a length and chunks': [a => head(`Content-Length: 3\r\nTransfer-Encoding: chunked\r\n`) + all(a), answered],
  'an unknown coding': [a => head('Transfer-Encoding: gzip, chunked\r\n') + all(a), noHttp],
  'two codings': [a => head('Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n') + all(a), noHttp],
  'a chunk beyond 64 bits': [() => chunked('FFFFFFFFFFFFFFFFF\r\n'), noHttp],
  'a chunk of 2^64-1': [() => chunked('FFFFFFFFFFFFFFFF\r\n'), noHttp],
  'a chunk of 2^59, and the end': [() => [chunked('7FFFFFFFFFFFFFF\r\n{')], cut],
  'a negative chunk': [() => chunked('-1\r\n'), noHttp],
  'a chunk in C': [() => chunked('0x5\r\n'), noHttp],
  'a chunk without a size': [() => chunked(';x\r\n'), noHttp],
  'an extension': [a => chunked(`${a.length.toString(16)};a="b";c \r\n${a}\r\n0;d\r\n\r\n`), answered],
  'an extension without end': [() => socket => { socket.write(chunked('1;')); endless('x'.repeat(1000))(socket); }, noHttp],
  'a chunk without its end': [a => chunked(`${a.length.toString(16)}\r\n${a}0\r\n\r\n`), noHttp],
  'a chunk line with a bare LF': [a => chunked(`${a.length.toString(16)}\n${a}\n0\n\n`), noHttp],
  'chunks without the last one': [a => [chunked(chunk(a))], cut],
  'chunks of one byte': [a => chunked([...a].map(chunk).join('') + '0\r\n\r\n'), answered],
  'trailers': [a => chunked(`${chunk(a)}0\r\nContent-Length: 7\r\nMcp-Session-Id: x\r\n\r\n`), answered],
  'trailers without end': [a => socket => { socket.write(chunked(`${chunk(a)}0\r\n`)); endless('X: y\r\n')(socket); }, noHttp],
  'a header without end': [() => socket => { socket.write('HTTP/1.1 200 OK\r\nX: '); endless('x'.repeat(5000))(socket); }, noHttp],
  'headers without end': [() => socket => { socket.write('HTTP/1.1 200 OK\r\n'); endless('X: y\r\n')(socket); }, noHttp],
  'a hundred and one headers': [a => json(a).replace('\r\n', '\r\n' + 'X: y\r\n'.repeat(99)), noHttp],
  'bare LF': [a => json(a).replaceAll('\r\n', '\n'), noHttp],
  'bare CR': [a => [json(a).replaceAll('\r\n', '\r')], cut],
  'a bare CR in a value': [a => json(a).replace('json\r\n', 'json\rX: y\r\n'), noHttp],
  'a NUL in a value': [a => json(a).replace('json\r\n', 'json\0\r\n'), noHttp],
  'a folded line': [a => json(a).replace('json\r\n', 'json;\r\n charset=utf-8\r\n'), noHttp],
  'space before a colon': [a => json(a).replace('Length:', 'Length :'), noHttp],
  'an empty line before': [a => '\r\n' + json(a), noHttp],
  'a line without a colon': [a => json(a).replace('\r\n', '\r\nnothing\r\n'), noHttp],
  'HTTP/1.0': [a => [head('', `HTTP/1.0 ${status}`) + a], answered],
  'chunks in HTTP/1.0': [a => head('Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n', `HTTP/1.0 ${status}`) + all(a), answered],
  'HTTP/1.x': [a => json(a).replace('1.1', '1.x'), noHttp],
  'HTTP/0.9': [a => [a], cut],
  'HTTP/2': [() => ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0'], noHttp],
  'frames of HTTP/2': [() => ['\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\x04\0\xa0\0\0'], cut],
  TLS: [() => ['\x15\x03\x01\0\x02\x02\x46'], cut],
  'nothing': [() => [''], silent],
  'nothing, for ever': [() => '', late],
  'two responses': [a => json(a) + json(a.replace('right', 'wrong')), answered],
  'two responses, the second late': [a => socket => { socket.write(json(a)); setTimeout(() => socket.write(json(a.replace('right', 'wrong'))), 3); }, answered],
  'two answers in a body': [a => json(`${a}\n${a}`), silent],
  'bytes behind a response': [a => json(a) + '\r\n\0\xff', answered],
  '204 with a body': [a => json(a).replace(status, '204 No Content'), silent],
  '304 with a body': [a => json(a).replace(status, '304 Not Modified'), /HTTP 304/],
  '205': [() => none(205), silent],
  'a status that nobody knows': [a => json(a).replace(status, '599'), /HTTP 599/],
  'a status of one digit more': [a => json(a).replace(status, '2000'), noHttp],
  'compression that nobody asked for': [a => head(`Content-Encoding: gzip\r\nContent-Length: ${gzipSync(a).length}\r\n`) + gzipSync(a).toString('latin1'), /compressed|without a response/],
  'another type': [a => json(a).replace('application/json', 'text/html'), answered],
  'no type': [a => json(a).replace('Content-Type: application/json\r\n', ''), answered],
  'a type with parameters': [a => json(a).replace('application/json', 'APPLICATION/JSON ; charset="utf-8"'), answered],
  'an event': [a => sse(a), answered],
  'an event of a type with parameters': [a => sse(a, 'Text/Event-Stream;charset=utf-8'), answered],
  'a type that begins like that of events': [a => sse(a, 'text/event-streams'), silent],
  'half an event': [a => [streamHead + chunk(event(a).slice(0, -20))], /closed the connection|ended before/],
  'an event without its empty line': [a => [streamHead + chunk(`data: ${a}\n`)], /closed the connection|ended before/],
  'the end of a stream without its empty line': [a => streamHead + all(`data: ${a}\n`), /ended before/],
  'half an event, and a reset': [a => socket => socket.write(streamHead + chunk(event(a).slice(0, -20)), () => setTimeout(() => reset(socket), 20)), /broke|closed/],
  'a stream of no events': [() => streamHead + '0\r\n\r\n', /ended before/],
  'comments for ever': [() => socket => { socket.write(streamHead); const beat = setInterval(() => socket.write(chunk(':\n')), 5); socket.on('close', () => clearInterval(beat)); }, late],
  'a redirect': [() => none(307).replace('\r\n', '\r\nLocation: http://127.0.0.1:1/elsewhere\r\n'), /HTTP 307/],
  'a redirect to itself': [() => none(302).replace('\r\n', '\r\nLocation: /mcp\r\n'), /HTTP 302/],
  'a body of 100 MB': [() => socket => { socket.write(head(`Content-Length: ${100 << 20}\r\n`)); endless(' '.repeat(1 << 16))(socket); }, /larger than the limit/],
  'an event of 100 MB': [() => socket => { socket.write(streamHead.replace('Transfer-Encoding: chunked', `Content-Length: ${100 << 20}`) + 'data: '); endless('x'.repeat(1 << 16))(socket); }, /larger than the limit/],
  'an error of 100 MB': [() => socket => { socket.write(none(500).replace('Length: 0', `Length: ${100 << 20}`)); endless(' '.repeat(1 << 16))(socket); }, /HTTP 500|deadline|in time/],
  'a byte now and then': [a => socket => { let i = 0; const drip = setInterval(() => socket.write(json(a)[i++]), 50); socket.on('close', () => clearInterval(drip)); }, late],
  'a reset at once': [() => reset, /broke|closed/],
};

// One that knows which answer is whose: a call's argument `n` is in its answer.
function hostile(t, listen) {
  return server(t, (socket, message, answer, seen) => {
    const text = message.params.arguments.n ?? 'right', send = (cases[message.params.name]?.[0] ?? json)(answer.replace(/answer \d+/, text));
    if (typeof send === 'function') send(socket);
    else if (Array.isArray(send)) socket.end(send[0], 'latin1');
    else socket.write(send, 'latin1');
  }, listen);
}

const resident = valet => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${valet.pid}/status`, 'utf8'))[1]) << 10;

for (const kind of ['TCP', 'Unix'])
  test(`what a server can answer over ${kind}`, { timeout: 240000 }, async t => {
    const path = join(scratch(t), 's'), seen = await hostile(t, kind === 'Unix' ? { path } : undefined);
    const valet = await front(t, kind === 'Unix' ? `unix:${path}:/mcp` : at(seen));
    await call(valet, 'good', {});
    await sleep(1500); // nothing is idle
    const before = descriptors(valet.pid), wrong = [];
    let n = 0;
    for (const [name, [, expected]] of Object.entries(cases)) {
      const started = Date.now(), calls = seen.calls, { result, error } = await call(valet, name, {}), ms = Date.now() - started;
      const got = result ? textOf(result) : error.message;
      if (!expected.test(got) || ms > 4000) wrong.push(`${name}: ${got} (${ms} ms)`);
      if (seen.calls !== calls + 1) wrong.push(`${name}: called ${seen.calls - calls} times`);
      const next = await call(valet, 'good', { n: `next ${++n}` });
      if (next.error || textOf(next.result) !== `next ${n}`) wrong.push(`after ${name}: ${next.text}`);
    }
    assert.deepEqual(wrong, []);
    assert.ok(resident(valet) < 400 << 20);
    await until(() => descriptors(valet.pid) <= before, `${descriptors(valet.pid)} descriptors to become ${before}`, 5000);
  });

// The next request finds the connection with the surplus on it, on its way, or not yet.
test('the second response to a request never answers the next one', { timeout: 60000 }, async t => {
  const seen = await server(t, (socket, message, answer) => {
    const own = answer.replace(/answer \d+/, message.params.arguments.n), { ms } = message.params.arguments;
    const second = () => socket.write(json(own));
    socket.write(json(own) + (ms < 0 ? json(own) : ''));
    if (ms === 0) setImmediate(second); else if (ms > 0) setTimeout(second, ms);
  });
  const valet = await front(t, at(seen));
  for (let round = 0; round < 10; round++)
    for (const ms of [-1, 0, 1, 2, 5, 10, 50]) {
      const n = `${round}/${ms}`, { result, error } = await call(valet, 'x', { n, ms });
      if (result) assert.equal(textOf(result), n);
      else assert.match(error.message, /another id|lost/);
    }
});

// The worst of it: the ids of two sessions could be the same.
test('a response that comes too late does not answer the request of another client', { timeout: 20000 }, async t => {
  let leftover = '';
  const seen = await server(t, (socket, message, answer) => {
    const own = json(answer.replace(/answer \d+/, message.params.arguments.n));
    socket.write(leftover + own);
    leftover = own;
  });
  seen.onConnection = () => { leftover = ''; };
  const valet = await front(t, at(seen)), as = who => ({ headers: { authorization: `Bearer ${who}` } });
  for (let i = 0; i < 6; i++) {
    const who = i % 2 ? 'bob' : 'alice', n = `${who} ${i}`, { result, error } = await call(valet, 'x', { n }, {}, as(who));
    if (result) assert.equal(textOf(result), n);
    else assert.match(error.message, /another id/);
  }
});

for (const [kind, whole] of Object.entries({ 'a body': json, chunks: answer => chunked(all(answer)), events: answer => streamHead + all(event(answer)) }))
  for (const [how, finish] of Object.entries({ closed: socket => socket.end(), reset: socket => setTimeout(() => socket.resetAndDestroy(), 1) }))
    test(`${kind} ${how} at every byte`, { timeout: 120000 }, async t => {
      const seen = await server(t, (socket, message, answer) => {
        const text = whole(answer.replace(/answer \d+/, message.params.arguments.n)), { cut } = message.params.arguments;
        if (cut === undefined) socket.write(text);
        else socket.write(text.slice(0, cut), () => finish(socket));
        seen.length = text.length;
      });
      const valet = await front(t, at(seen));
      await call(valet, 'x', { n: 'first' });
      const before = descriptors(valet.pid);
      for (let cut = 1; cut < seen.length; cut += how === 'reset' ? 3 : 1) {
        const calls = seen.calls, { result, error } = await call(valet, 'x', { n: `n${cut}`, cut });
        if (result) assert.equal(textOf(result), `n${cut}`);
        else assert.match(error.message, /middle of its response|without a response|broke|ended before|closed/, `${cut}`);
        assert.ok(result ? kind === 'events' : true, `${cut}: ${JSON.stringify(result)}`);
        assert.equal(seen.calls, calls + 1);
      }
      assert.equal(textOf((await call(valet, 'x', { n: 'last' })).result), 'last');
      await until(() => descriptors(valet.pid) <= before, 'the descriptors of before', 5000);
    });

// A server that refuses a request need not read all of it.
for (const [how, finish] of Object.entries({ 'and reads on': socket => socket.resume(), 'and closes': socket => socket.end(), 'and stops reading': socket => socket.pause() }))
  test(`503 while the request is being written, ${how}`, { timeout: 20000 }, async t => {
    const seen = await server(t, (socket, message, answer) => socket.write(json(answer)));
    seen.onHead = (socket, found) => {
      if (socket.refused || Number(/content-length: (\d+)/i.exec(found)?.[1] ?? 0) < 1 << 20) return socket.refused;
      socket.refused = true;
      socket.write(json('busy').replace(status, '503 Busy'));
      finish(socket);
      return true;
    };
    const valet = await front(t, at(seen), 'version: 1\n');
    await call(valet, 'x', {});
    for (let i = 0; i < 2; i++) {
      const { error } = await call(valet, 'x', { text: 'x'.repeat(3 << 20) });
      assert.match(error.message, /HTTP 503: busy/);
      assert.equal(textOf((await call(valet, 'x', {})).result), `answer ${i + 2}`);
    }
  });

// "retry: 0", and nothing but a reason to come again, on each connection.
const nothing = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nid: 1\nretry: 0\n\n';
for (const [which, begin] of Object.entries({
  'an answer': seen => { seen.onGet = (socket, found) => { if (/last-event-id/i.test(found)) seen.polls++; socket.end(/last-event-id/i.test(found) ? nothing : none(405)); }; },
  'the stream of a session': seen => { seen.onGet = socket => { seen.polls++; socket.end(nothing); }; },
}))
  test(`${which} that is only asked for again is asked for at a pace`, { timeout: 30000 }, async t => {
    const seen = await server(t, (socket, message, answer) => message.params.name === 'polled' ? socket.end(nothing) : socket.write(json(answer)));
    seen.polls = 0;
    begin(seen);
    const valet = await front(t, at(seen), 'version: 1\ndefaults: { call: 4s }\n');
    await call(valet, 'x', {});
    const polls = seen.polls;
    const { error } = await call(valet, 'polled', {});
    assert.match(error.message, late);
    assert.ok(seen.polls > polls + 2 && seen.polls < polls + 25, `${seen.polls - polls} in 4 s`);
    assert.equal(textOf((await call(valet, 'x', {})).result), `answer ${seen.calls}`);
  });

test('a Unix socket whose queue is full is tried again', { timeout: 30000 }, async t => {
  const path = join(scratch(t), 's');
  const script = `import socket, sys, time
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(0)
c = [socket.socket(socket.AF_UNIX) for i in range(1)]
for x in c: x.connect(sys.argv[1])
print('full', flush=True); time.sleep(0.7)
s.listen(64)
while True:
    a, _ = s.accept(); a.settimeout(0.5)
    try:
        got = a.recv(65536)
        if got: a.sendall(b'HTTP/1.1 418 Teapot\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n')
    except OSError: pass
    a.close()`;
  const child = spawn('python3', ['-c', script, path]);
  t.after(() => child.kill('SIGKILL'));
  await until(() => new Promise(resolve => child.stdout.once('data', resolve)), 'the queue to be full');
  const valet = await front(t, `unix:${path}:/mcp`), started = Date.now();
  assert.match((await call(valet, 'x', {})).error.message, /HTTP 418/);
  assert.ok(Date.now() - started > 300);
});

test('a Unix socket whose queue stays full is given up in time', { timeout: 30000 }, async t => {
  const path = join(scratch(t), 's');
  const child = spawn('python3', ['-c', `import socket, sys, time
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(0)
c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[1])
print('full', flush=True); time.sleep(60)`, path]);
  t.after(() => child.kill('SIGKILL'));
  await until(() => new Promise(resolve => child.stdout.once('data', resolve)), 'the queue to be full');
  const valet = await front(t, `unix:${path}:/mcp`, 'version: 1\ndeadlines: { connect: 1s, initialize: 10s }\n'), started = Date.now();
  assert.match((await call(valet, 'x', {})).error.message, /Cannot connect/);
  assert.ok(Date.now() - started < 6000);
});

test('a response before the request answers nothing that was asked later', { timeout: 20000 }, async t => {
  const seen = await server(t, (socket, message, answer) => socket.write(json(answer.replace(/answer \d+/, message.params.arguments.n))));
  const valet = await front(t, at(seen));
  await call(valet, 'x', { n: 'first' });
  await sleep(1500);
  seen.onConnection = socket => { socket.write(none(408)); };
  for (let i = 0; i < 10; i++) {
    const { result, error } = await call(valet, 'x', { n: `n${i}` });
    if (result) assert.equal(textOf(result), `n${i}`);
    else assert.match(error.message, /HTTP 408|another id|without a response/);
  }
});
