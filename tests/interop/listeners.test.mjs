// Two hundred listeners and two hundred parked calls, while the legacy server is restarted.
import test from 'node:test';
import assert from 'node:assert/strict';
import http from 'node:http';
import { spawn } from 'node:child_process';
import { answerAll, call, descriptors, fixture, freePort, meta, retry, serve, sleep, textOf, until } from './valet.mjs';

const many = 200, ids = [...Array(many).keys()];

async function startServer(t, port) {
  const child = spawn('node', [fixture('http_asker.mjs')], { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, PORT: String(port) } });
  t.after(() => child.kill('SIGKILL'));
  await new Promise(resolve => child.stdout.once('data', resolve));
  return async () => { child.kill('SIGKILL'); await new Promise(resolve => child.on('exit', resolve)); };
}

// An open subscriptions/listen: the messages that came on it, and a way to hang up.
function listen(valet, id) {
  const messages = [];
  const body = JSON.stringify({ jsonrpc: '2.0', id, method: 'subscriptions/listen',
    params: { notifications: { toolsListChanged: true }, _meta: meta() } });
  const request = http.request({ host: '127.0.0.1', port: valet.port, path: '/mcp', method: 'POST', agent: false, headers: {
    'content-type': 'application/json', accept: 'application/json, text/event-stream',
    'mcp-protocol-version': '2026-07-28', 'mcp-method': 'subscriptions/listen' } }, response => {
    let rest = '';
    response.setEncoding('utf8');
    response.on('data', data => {
      const lines = (rest + data).split('\n');
      rest = lines.pop();
      for (const line of lines) if (line.startsWith('data: ')) messages.push(JSON.parse(line.slice(6)));
    });
  });
  request.on('error', () => {});
  request.end(body);
  return { id, messages, hangUp: () => request.destroy() };
}

const named = (listener, method) => listener.messages.filter(message => message.method === method);


test(`${many} listeners and ${many} parked calls over a restart of the server`, { timeout: 120000 }, async t => {
  const port = await freePort();
  const stop = await startServer(t, port);
  const valet = await serve(t, [], { args: ['--upstream', `http://127.0.0.1:${port}/mcp`],
    policy: 'version: 1\nlimits: { parked_per_principal: 500, server_requests: 500, connections_per_address: 1000 }\n' });
  assert.ok((await call(valet, 'plain')).result);
  const before = descriptors(valet.pid);

  const listeners = ids.map(id => listen(valet, `listener-${id}`));
  await until(() => listeners.every(listener => named(listener, 'notifications/subscriptions/acknowledged').length === 1), 'the acknowledgements', 30000);
  const parked = await Promise.all(ids.map(id => call(valet, 'on_post', { what: `file ${id}` })));
  for (const { result, text } of parked) assert.equal(result?.resultType, 'input_required', text);
  assert.ok(listeners.every(listener => named(listener, 'notifications/tools/list_changed').length === 0));

  await stop();
  const stopAgain = await startServer(t, port);
  await until(() => listeners.every(listener => named(listener, 'notifications/tools/list_changed').length > 0), 'every listener to be told', 30000);
  for (const { id, messages } of listeners) for (const message of messages)
    assert.equal(message.params._meta['io.modelcontextprotocol/subscriptionId'], id);

  // No answer of before the restart may approve anything: it is asked anew, or the call is said to be lost.
  const retries = await Promise.all(parked.map(({ result }, id) =>
    retry(valet, 'on_post', { what: `file ${id}` }, result, answerAll(result, { action: 'accept', content: { sure: 'y' } }))));
  const kinds = { lost: 0, asked: 0 };
  for (const { result, error, text } of retries) {
    if (error) kinds.lost++;
    else if (result.resultType === 'input_required') kinds.asked++;
    else assert.fail(text);
  }
  t.diagnostic(JSON.stringify(kinds));
  assert.equal(kinds.lost + kinds.asked, many);

  // What is new works at once, for the listeners too.
  const again = await call(valet, 'on_post', { what: 'new' });
  assert.equal(textOf((await retry(valet, 'on_post', { what: 'new' }, again.result, answerAll(again.result, { action: 'accept', content: { sure: 'y' } }))).result), 'deleted new y');
  const told = listeners.map(listener => named(listener, 'notifications/tools/list_changed').length);
  assert.deepEqual(new Set(told), new Set([1]), 'one round of list changes');

  for (const listener of listeners) listener.hangUp();
  await until(() => descriptors(valet.pid) <= before + 16, 'the descriptors to be given back', 20000);
  await stopAgain();
  valet.child.kill('SIGTERM');
  assert.deepEqual(await valet.exited, { code: 0, signal: null });
  assert.doesNotMatch(valet.log, /AddressSanitizer|LeakSanitizer/);
});
