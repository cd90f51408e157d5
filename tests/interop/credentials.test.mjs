// Credentials on their way to an HTTP server, and principals that keep parked calls apart.
import test from 'node:test';
import assert from 'node:assert/strict';
import http from 'node:http';
import { spawn } from 'node:child_process';
import { answerAll, ask, call, fixture, retry, serve, textOf, until } from './valet.mjs';

async function front(t, policy = '') {
  const child = spawn('node', [fixture('guarded.mjs')], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  let out = '';
  child.stdout.on('data', data => { out += data; });
  await until(() => /\d+\n/.test(out), 'the server to listen');
  return serve(t, [], { args: ['--upstream', `http://127.0.0.1:${Number(out)}/mcp`], policy: `version: 1\n${policy}` });
}

test('401 and 403 reach the client as such, with what the server wants to see', { timeout: 20000 }, async t => {
  const valet = await front(t);
  for (const [headers, status] of [[{}, 401], [{ authorization: 'Bearer bad' }, 403]])
    for (const request of [() => ask(valet, 'server/discover', {}, { headers }), () => ask(valet, 'tools/list', {}, { headers }), () => call(valet, 'plain', {}, {}, { headers })]) {
      const response = await request();
      assert.equal(response.status, status);
      assert.equal(response.headers['www-authenticate'], 'Bearer resource_metadata="x"');
      assert.equal(response.error.data.reason, 'unauthorized');
    }
  assert.equal((await call(valet, 'plain', {}, {}, { headers: { authorization: 'Bearer good' } })).status, 200);
});

test('only what is meant for the server goes there', { timeout: 20000 }, async t => {
  const valet = await front(t, 'upstream: { forward_headers: [ X-Tenant ] }\n');
  const { result } = await call(valet, 'plain', {}, {}, { headers: { authorization: 'Bearer good', 'x-tenant': 'blue', 'x-other': 'no', origin: `http://127.0.0.1:${valet.port}` } });
  const headers = JSON.parse(textOf(result));
  assert.equal(headers.authorization, 'Bearer good');
  assert.equal(headers['x-tenant'], 'blue');
  assert.equal(headers['accept-encoding'], 'identity');
  assert.equal(headers['mcp-protocol-version'], '2025-06-18');
  assert.notEqual(headers.host, `127.0.0.1:${valet.port}`);
  for (const name of ['x-other', 'origin', 'mcp-method', 'mcp-name']) assert.equal(headers[name], undefined, name);
});

test('a token refreshed while a call is parked: the same principal by header, and the newest token is used', { timeout: 20000 }, async t => {
  const valet = await front(t, 'principal: header:X-User\n');
  const as = (user, token) => ({ headers: { 'x-user': user, authorization: `Bearer ${token}` } });
  const { result } = await call(valet, 'ask', {}, {}, as('alice', 'good-1'));
  const answers = answerAll(result, { action: 'accept', content: {} });
  const stolen = await retry(valet, 'ask', {}, result, answers, as('mallory', 'good-1'));
  assert.equal(stolen.error.data.reason, 'mismatch');
  const last = await retry(valet, 'ask', {}, result, answers, as('alice', 'good-2'));
  assert.equal(textOf(last.result), 'Bearer good-2');
  assert.ok(!valet.log.includes('good-'));
});

test('protected resource metadata is passed through', { timeout: 20000 }, async t => {
  const valet = await front(t);
  const get = path => new Promise((resolve, reject) => http.get({ host: '127.0.0.1', port: valet.port, path, agent: false }, response => {
    let text = '';
    response.on('data', data => { text += data; });
    response.on('end', () => resolve({ status: response.statusCode, text }));
  }).on('error', reject));
  assert.deepEqual(await get('/.well-known/oauth-protected-resource/mcp'), { status: 200, text: '{"resource":"guarded"}' });
  assert.equal((await get('/.well-known/oauth-protected-resource')).status, 401);
  assert.equal((await get('/.well-known/other')).status, 404);
});
