// A server over HTTP that does not know a session any more, because it was started again, or cannot be connected: what it
// certainly has not run is run in a new session, or said to be `unavailable`, and never to be `lost`.
import test from 'node:test';
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { ask, call, post, serve, sleep, textOf, until } from './valet.mjs';

const ways = {
  'as the specification says': { status: 404, body: '' },
  'as examples of the official SDK do': { status: 400, body: '{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}' },
};

// Answers with JSON bodies; `runs` are the calls that it ran. Calls of the tool `slow` wait for let_go().
async function start(t, { status, body } = ways['as the specification says']) {
  const state = { runs: [], posts: 0, opened: 0, sessions: new Set(), held: [], amnesia: false };
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const piece of request) text += piece;
    if (request.method !== 'POST') { response.writeHead(405).end(); return; }
    const { id, method, params } = JSON.parse(text);
    state.posts++;
    const session = request.headers['mcp-session-id'];
    const say = result => response.writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': `s${state.opened}` })
      .end(JSON.stringify({ jsonrpc: '2.0', id, result }));
    if (method === 'initialize') {
      state.sessions.add(`s${++state.opened}`);
      say({ protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } });
    } else if (!state.sessions.has(session) || (state.amnesia && id !== undefined)) {
      response.writeHead(status, { 'content-type': 'application/json' }).end(body);
    } else if (id === undefined) {
      response.writeHead(202).end();
    } else {
      if (method === 'tools/call') state.runs.push(params.arguments.what);
      if (params?.name === 'slow') await new Promise(resolve => state.held.push(resolve));
      say(method === 'tools/list' ? { tools: [] } : { content: [{ type: 'text', text: `ran ${params?.arguments?.what?.slice(0, 9)}` }] });
    }
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  state.stop = () => new Promise(resolve => { server.close(resolve); server.closeAllConnections(); });
  t.after(state.stop);
  state.let_go = () => state.held.splice(0).forEach(resolve => resolve());
  state.url = `http://127.0.0.1:${server.address().port}/mcp`;
  return state;
}

const front = (t, server) => serve(t, [], { args: ['--upstream', server.url] });

for (const [what, way] of Object.entries(ways))
  test(`the first call of a session that is gone runs in a new one: the server says it ${what}`, { timeout: 20000 }, async t => {
    const server = await start(t, way);
    const valet = await front(t, server);
    assert.equal(textOf((await call(valet, 'plain', { what: 'a' })).result), 'ran a');
    server.sessions.clear();
    assert.equal(textOf((await call(valet, 'plain', { what: 'b' })).result), 'ran b');
    assert.deepEqual([...server.runs, server.opened], ['a', 'b', 2]);
    server.sessions.clear();
    assert.deepEqual((await ask(valet, 'tools/list')).result?.tools, []);
  });

test('so do several calls at once', { timeout: 20000 }, async t => {
  const server = await start(t);
  const valet = await front(t, server);
  assert.ok((await call(valet, 'plain', { what: 'first' })).result);
  server.sessions.clear();
  const all = ['a', 'b', 'c', 'd', 'e', 'f'];
  const answers = await Promise.all(all.map(what => call(valet, 'plain', { what })));
  assert.deepEqual(answers.map(({ result, text }) => result ? textOf(result) : text), all.map(what => `ran ${what}`));
  assert.deepEqual(server.runs.slice(1).sort(), all);
});

test('a call that the server still works on is not lost with the session', { timeout: 20000 }, async t => {
  const server = await start(t);
  const valet = await front(t, server);
  const slow = call(valet, 'slow', { what: 'slow' });
  await until(() => server.held.length, 'the slow call');
  server.sessions.clear();
  assert.equal(textOf((await call(valet, 'plain', { what: 'a' })).result), 'ran a');
  server.let_go();
  assert.equal(textOf((await slow).result), 'ran slow');
  assert.deepEqual(server.runs, ['slow', 'a']);
  await until(() => /"session-lost"/.test(valet.log), 'the end of the old session');
});

test('a server that knows no session at all is asked twice and no more', { timeout: 20000 }, async t => {
  const server = await start(t);
  const valet = await front(t, server);
  assert.ok((await call(valet, 'plain', { what: 'a' })).result);
  server.amnesia = true;
  const before = server.posts;
  const { error } = await call(valet, 'plain', { what: 'b' });
  assert.equal(error.data.reason, 'unavailable');
  await sleep(300);
  assert.ok(server.posts - before <= 5, `${server.posts - before} requests`); // twice the call, once a handshake
  assert.deepEqual(server.runs, ['a']);
});

test('a large request is not kept for a second try, and said not to have run', { timeout: 20000 }, async t => {
  const server = await start(t);
  const valet = await front(t, server);
  assert.ok((await call(valet, 'plain', { what: 'a' })).result);
  server.sessions.clear();
  const { error } = await call(valet, 'plain', { what: 'x'.repeat(200000) });
  assert.equal(error.data.reason, 'unavailable');
  assert.equal(textOf((await call(valet, 'plain', { what: 'b' })).result), 'ran b');
});

test('what a server that is down did not get is unavailable, what it got is lost', { timeout: 20000 }, async t => {
  const server = await start(t);
  const valet = await front(t, server);
  const slow = call(valet, 'slow', { what: 'slow' });
  await until(() => server.held.length, 'the slow call');
  await server.stop();
  assert.equal((await slow).error.data.reason, 'lost');
  const { error } = await call(valet, 'plain', { what: 'a' });
  assert.equal(error.data.reason, 'unavailable');
  assert.match(error.message, /connect/i);
  assert.doesNotMatch(error.message, /effects/);
});

test('a legacy client is told that its session is gone, and opens another', { timeout: 20000 }, async t => {
  const server = await start(t);
  const valet = await front(t, server);
  const send = (message, headers) => post(valet, JSON.stringify(message), headers);
  const initialize = { jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'c', version: '1' } } };
  const list = { jsonrpc: '2.0', id: 2, method: 'tools/list' };
  for (let i = 0; i < 2; i++) {
    const { headers } = await send(initialize);
    const session = { 'mcp-session-id': headers['mcp-session-id'], 'mcp-protocol-version': '2025-06-18' };
    await send({ jsonrpc: '2.0', method: 'notifications/initialized' }, session);
    assert.equal((await send(list, session)).status, 200);
    server.sessions.clear();
    assert.equal((await send(list, session)).status, 404);
    assert.equal((await send(list, session)).status, 404);
  }
});
