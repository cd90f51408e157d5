// Tasks for clients that declare the extension (SEP-2663): the official client of it, and bare requests.
import test from 'node:test';
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { readFileSync } from 'node:fs';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { createTaskSessionFromClient, resultFromTaskOutcome } from '@modelcontextprotocol/ext-tasks/client';
import { ask, everything, fixture, makeClient, post, scratch, serve, until } from './valet.mjs';

const extension = 'io.modelcontextprotocol/tasks';
const declared = { ...everything, extensions: { [extension]: {} } };
const asker = [process.execPath, fixture('asker.mjs')];
const policy = after => `version: 1\ndefaults: { task_after: ${after} }\n`;

// The official task client on the official client; the requests that the SDK does not know go out bare.
async function session(t, { after, answers = {}, env }) {
  const valet = await serve(t, asker, { policy: policy(after), env });
  const client = makeClient(declared);
  await client.connect(new StreamableHTTPClientTransport(new URL(valet.url)));
  t.after(() => client.close());
  assert.deepEqual(client.getServerCapabilities().extensions, { [extension]: {} });
  const asked = [], sent = [];
  let id = 1;
  const session = createTaskSessionFromClient(client, {
    endpointId: 'interop',
    onInputRequest: async (request, { scope, inputId }) => {
      asked.push({ scope, inputId, message: request.params.message });
      return answers[request.kind](request.params);
    },
    v2RequestFraming: { protocolVersion: '2026-07-28', clientInfo: { name: 'interop', version: '1' }, clientCapabilities: declared },
    rawDispatch: async (request, { signal } = {}) => {
      sent.push(request.method);
      const response = await post(valet, JSON.stringify({ jsonrpc: '2.0', id: id++, ...request }),
        { 'mcp-protocol-version': '2026-07-28', 'mcp-method': request.method, 'mcp-name': request.params.taskId ?? request.params.name }, { signal });
      const { result, error } = JSON.parse(response.text);
      return error ? { kind: 'error', error } : { kind: 'result', result };
    },
  });
  t.after(() => session.close());
  return { session, asked, sent, valet };
}

const textOf = ({ outcome }) => resultFromTaskOutcome(outcome).content[0].text;
const fill = params => ({ action: 'accept', content: { [Object.keys(params.requestedSchema.properties)[0]]: params.message } });
const write = params => ({ role: 'assistant', model: 'm', content: { type: 'text', text: params.messages[0].content.text } });

test('the official task client: a call with questions is a task from the start', { timeout: 60000 }, async t => {
  const { session: tasks, asked, sent } = await session(t, { after: '0s', answers: { elicitation: fill, sampling: write } });
  const execution = await tasks.callTool('three_rounds', {});
  assert.equal(execution.kind, 'task');
  assert.equal(textOf(await execution.settle()), 'Question 1? Question 2? Question 3?');
  assert.equal(textOf(await (await tasks.callTool('sample_after_elicit', {})).settle()), 'Write about Topic?');
  assert.equal(textOf(await (await tasks.callTool('two_at_once', {})).settle()), 'First? Second?');
  assert.ok(asked.every(({ scope }) => scope === 'task'), JSON.stringify(asked));
  assert.equal(asked.length, 7);
  assert.ok(sent.includes('tasks/update') && sent.includes('tasks/get'));
});

test('the official task client: what is quick has no task, what asks has rounds first, what works long becomes a task', { timeout: 60000 }, async t => {
  const { session: tasks, asked } = await session(t, { after: '700ms', answers: { elicitation: fill } });
  const quick = await tasks.callTool('plain', { n: 1 });
  assert.equal(quick.kind, 'immediate');
  assert.equal(textOf(await quick.settle()), 'plain {"n":1}');
  const confirmed = await tasks.callTool('confirm', { what: 'x' });
  assert.equal(textOf(await confirmed.settle()), 'deleted x Delete x?');
  assert.deepEqual(asked.map(({ scope }) => scope), ['request']);
  const long = await tasks.callTool('stubborn', { ms: 2000 });
  assert.equal(long.kind, 'task');
  assert.equal(textOf(await long.settle()), 'done anyway');
});

test('the official task client: a cancelled task is cancelled at the server', { timeout: 60000 }, async t => {
  const record = join(scratch(t), 'record');
  const { session: tasks } = await session(t, { after: '0s', env: { RECORD: record } });
  const execution = await tasks.callTool('stubborn', { ms: 60000 });
  await until(() => readFileSync(record, 'utf8').includes('stubborn-started'), 'the start');
  await execution.cancel();
  assert.equal((await execution.settle()).outcome.status, 'cancelled');
  await until(() => readFileSync(record, 'utf8').includes('stubborn-cancelled'), 'the cancellation');
});

test('the official task client: an error of the call fails the task', { timeout: 60000 }, async t => {
  const { session: tasks } = await session(t, { after: '0s' });
  const { outcome } = await (await tasks.callTool('no_such_tool', {})).settle();
  assert.equal(outcome.status, 'failed');
  assert.equal(typeof outcome.error.code, 'number');
});

const task = (valet, method, taskId, more = {}, { headers = {}, capabilities = declared } = {}) =>
  ask(valet, method, { taskId, ...more }, { capabilities, headers: { 'mcp-name': taskId, ...headers } });

test('a task is its principal\'s alone, and its headers must be true', { timeout: 60000 }, async t => {
  const valet = await serve(t, asker, { policy: policy('0s') });
  const mine = { authorization: 'Bearer mine' }, other = { authorization: 'Bearer other' };
  const made = await ask(valet, 'tools/call', { name: 'confirm', arguments: { what: 'it' } }, { capabilities: declared, headers: mine });
  const { taskId } = made.result;
  assert.equal(made.result.resultType, 'task');
  assert.match(taskId, /^[0-9a-f]{32}$/);
  const asked = await until(async () => { const { result } = await task(valet, 'tasks/get', taskId, {}, { headers: mine }); return result.status === 'input_required' && result; }, 'the question');
  const [key] = Object.keys(asked.inputRequests);
  const inputResponses = { [key]: { action: 'accept', content: { sure: 'yes' } } };
  const unknown = await task(valet, 'tasks/update', '0'.repeat(32), { inputResponses }, { headers: mine });
  for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel']) {
    const foreign = await task(valet, method, taskId, { inputResponses }, { headers: other });
    assert.equal(foreign.error.code, -32602);
    assert.deepEqual({ ...foreign.error, status: foreign.status }, { ...unknown.error, status: unknown.status });
    for (const headers of [{ ...mine, 'mcp-name': 'another' }, { ...mine, 'mcp-name': '' }]) {
      const untrue = await task(valet, method, taskId, { inputResponses }, { headers });
      assert.deepEqual([untrue.status, untrue.error.code], [400, -32020]);
    }
    const undeclared = await task(valet, method, taskId, { inputResponses }, { headers: mine, capabilities: everything });
    assert.deepEqual([undeclared.status, undeclared.error.code], [400, -32021]);
    assert.deepEqual(undeclared.error.data.requiredCapabilities, { extensions: { [extension]: {} } });
  }
  assert.equal((await task(valet, 'tasks/get', taskId, {}, { headers: mine })).result.status, 'input_required');
  assert.equal((await task(valet, 'tasks/update', taskId, {}, { headers: mine })).error.code, -32602);
  assert.deepEqual(Object.keys((await task(valet, 'tasks/update', taskId, { inputResponses }, { headers: mine })).result).sort(), ['_meta', 'resultType']);
  const done = await until(async () => { const { result } = await task(valet, 'tasks/get', taskId, {}, { headers: mine }); return result.status === 'completed' && result; }, 'the end');
  assert.equal(done.result.content[0].text, 'deleted it yes');
  assert.ok(!valet.log.includes(taskId), 'the log tells the id of a task');
});

test('who listens for tasks must declare them, and none is promised', { timeout: 60000 }, async t => {
  const valet = await serve(t, asker, { policy: policy('0s') });
  const filter = { notifications: { toolsListChanged: true, taskIds: ['x'] } };
  const undeclared = await ask(valet, 'subscriptions/listen', filter);
  assert.deepEqual([undeclared.status, undeclared.error.code], [400, -32021]);
  const stop = new AbortController();
  const response = await fetch(valet.url, { method: 'POST', signal: stop.signal, headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream',
    'mcp-protocol-version': '2026-07-28', 'mcp-method': 'subscriptions/listen' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'subscriptions/listen', params: { ...filter, _meta: {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': declared } } }) });
  const { value } = await response.body.pipeThrough(new TextDecoderStream()).getReader().read();
  stop.abort();
  assert.deepEqual(JSON.parse(/data: (.*)/.exec(value)[1]).params.notifications, { toolsListChanged: true });
});

test('without task_after there are no tasks', { timeout: 60000 }, async t => {
  const valet = await serve(t, asker);
  assert.equal((await ask(valet, 'server/discover', {}, { capabilities: declared })).result.capabilities.extensions, undefined);
  assert.equal((await ask(valet, 'tools/call', { name: 'stubborn', arguments: { ms: 300 } }, { capabilities: declared })).result.resultType, 'complete');
  for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel']) {
    const none = await task(valet, method, '0'.repeat(32), { inputResponses: {} });
    assert.deepEqual([none.status, none.error.code], [404, -32601]);
  }
});
