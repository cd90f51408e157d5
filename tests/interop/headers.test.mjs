// mcp_headers: validate. Headers that mirror the arguments of a call (2026-07-28 transports/streamable-http "Custom Headers
// from Tool Parameters") in front of a legacy server that knows nothing of them.
import test from 'node:test';
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { answerAll, ask, call, connect, fixture, recorded, retry, scratch, serve, textOf, until } from './valet.mjs';

const server = ['node', fixture('mirrored.mjs')];
const policy = 'version: 1\nmcp_headers: validate\n';
const accept = { action: 'accept', content: { x: 'yes' } };

async function start(t, env = {}) {
  const record = join(scratch(t), 'record');
  const valet = await serve(t, server, { policy, env: { RECORD: record, ...env } });
  return { valet, lists: () => recorded(record).filter(({ list }) => list !== undefined).length,
    calls: () => recorded(record).filter(event => event.call).map(event => event.call) };
}

async function refused(answer, why) {
  assert.equal(answer.status, 400, answer.text);
  assert.equal(answer.error.code, -32020);
  assert.match(answer.error.message, why);
}

test('a tool that nobody has listed is checked all the same', { timeout: 20000 }, async t => {
  const { valet, lists, calls } = await start(t);
  await refused(await call(valet, 'first', { region: 'eu' }), /Mcp-Param-Region header is missing/);
  await refused(await call(valet, 'second', { key: 'v' }, {}, { headers: { 'mcp-param-before': 'w' } }), /Mcp-Param-Before header does not match/);
  await refused(await call(valet, 'first', {}, {}, { headers: { 'mcp-param-region': 'eu' } }), /has no argument/);
  assert.deepEqual(calls(), [], 'nothing reached the server');
  const good = await call(valet, 'first', { region: 'Zürich', at: { n: 42 } }, {},
    { headers: { 'Mcp-Param-Region': `=?base64?${Buffer.from('Zürich').toString('base64')}?=`, 'MCP-PARAM-N': '42.0' } });
  assert.equal(textOf(good.result), 'called first');
  assert.equal(textOf((await call(valet, 'first', { region: null }, {}, { headers: { 'mcp-param-unknown': 'x' } })).result), 'called first');
  assert.equal(lists(), 2, 'one list of two pages');
});

test('calls at once wait for the same list', { timeout: 20000 }, async t => {
  const { valet, lists } = await start(t);
  const answers = await Promise.all(Array.from({ length: 20 }, (_, i) =>
    call(valet, 'first', { region: 'eu' }, {}, { headers: i % 2 ? {} : { 'mcp-param-region': 'eu' } })));
  assert.deepEqual(answers.map(answer => answer.status), answers.map((_, i) => i % 2 ? 400 : 200));
  assert.equal(lists(), 2);
});

test('what breaks the rules is taken out, so that the tool stays', { timeout: 20000 }, async t => {
  const { valet } = await start(t);
  const { result } = await ask(valet, 'tools/list');
  assert.deepEqual(result.tools.map(tool => tool.inputSchema.properties), [
    { region: { type: 'string', 'x-mcp-header': 'Region' }, at: { type: 'object', properties: { n: { type: 'integer', 'x-mcp-header': 'N' } } } },
    { list: { type: 'array', items: { type: 'string' } } }]);
  assert.equal(textOf((await call(valet, 'broken', { list: ['a'] })).result), 'called broken');
  assert.match(valet.log, /"event":"headers-unusable"/);
});

test('a change of the tools is noticed', { timeout: 20000 }, async t => {
  const { valet } = await start(t);
  const before = { headers: { 'mcp-param-before': 'v' } }, after = { headers: { 'mcp-param-after': 'v' } };
  assert.equal(textOf((await call(valet, 'second', { key: 'v' }, {}, before)).result), 'called second');
  await call(valet, 'change');
  await refused(await call(valet, 'second', { key: 'v' }, {}, before), /Mcp-Param-After header is missing/);
  assert.equal(textOf((await call(valet, 'second', { key: 'v' }, {}, after)).result), 'called second');
});

test('a retry is checked, and refused without harm', { timeout: 20000 }, async t => {
  const { valet } = await start(t);
  const headers = { 'mcp-param-region': 'eu' };
  const { result } = await call(valet, 'asking', { region: 'eu' }, {}, { headers });
  assert.equal(result.resultType, 'input_required');
  await refused(await retry(valet, 'asking', { region: 'eu' }, result, answerAll(result, accept)), /missing/);
  const done = await retry(valet, 'asking', { region: 'eu' }, result, answerAll(result, accept), { headers });
  assert.equal(textOf(done.result), 'asked yes');
  await refused(await retry(valet, 'asking', { region: 'eu' }, result, answerAll(result, accept), { headers: { 'mcp-param-region': 'us' } }), /does not match/);
});

test('a server that cannot list its tools gets no unchecked call', { timeout: 20000 }, async t => {
  const { valet, calls } = await start(t, { FAIL_LISTS: '1' });
  const answer = await call(valet, 'first', { region: 'eu' });
  assert.equal(answer.error.code, -32603);
  assert.equal(answer.error.data.reason, 'unavailable');
  assert.deepEqual(calls(), []);
  await refused(await call(valet, 'first', { region: 'eu' }), /missing/);
});

test('a list without end is given up', { timeout: 20000 }, async t => {
  const { valet, lists } = await start(t, { ENDLESS: '1' });
  await refused(await call(valet, 'second', { key: 'v' }), /missing/);
  assert.equal(lists(), 100);
  assert.match(valet.log, /"event":"headers-unchecked"/);
});

for (const face of ['http', 'stdio'])
  test(`the official client over ${face}`, { timeout: 20000 }, async t => {
    const client = await connect(t, face, server, { policy });
    await client.listTools();
    const args = { region: ' padded ', at: { n: 7 } };
    assert.equal(textOf(await client.callTool({ name: 'first', arguments: args })), 'called first');
    await client.callTool({ name: 'change', arguments: {} });
    await client.listTools();
    assert.equal(textOf(await client.callTool({ name: 'second', arguments: { key: 'é' } })), 'called second');
  });

test('by default nobody is asked for headers', { timeout: 20000 }, async t => {
  const record = join(scratch(t), 'record');
  const valet = await serve(t, server, { env: { RECORD: record } });
  assert.equal(textOf((await call(valet, 'first', { region: 'eu' })).result), 'called first');
  assert.deepEqual(recorded(record).filter(event => event.list !== undefined), []);
  assert.ok(!(await ask(valet, 'tools/list')).text.includes('x-mcp-header'));
});
