// deadlines.lists: a list is given again without asking the server, until it says that one has changed.
import test from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ask, call, fixture, recorded, scratch, serve, until } from './valet.mjs';

async function start(t, policy) {
  const record = join(scratch(t), 'record');
  const valet = await serve(t, ['node', fixture('asker.mjs')], { policy, env: { RECORD: record } });
  const list = async (capabilities = {}, params = {}) => (await ask(valet, 'tools/list', params, { capabilities })).text.replace(/"id":\d+/, '');
  return { valet, list, asked: () => recorded(record).filter(({ event }) => event === 'list').length };
}

test('without it every list goes to the server', async t => {
  const { list, asked } = await start(t);
  await list();
  await list();
  assert.equal(asked(), 2);
});

test('with it the server is asked once, and again after a change', async t => {
  const { valet, list, asked } = await start(t, 'version: 1\ndeadlines: { lists: 10m }\n');
  const first = await list();
  assert.match(first, /"three_rounds"/);
  assert.equal(await list(), first);
  assert.equal(asked(), 1);
  await list({}, { cursor: 'other' });
  assert.equal(asked(), 2, 'another page is another list');
  await list({ roots: {} });
  assert.equal(asked(), 3, 'another session has its own');
  assert.ok((await call(valet, 'change', {}, {}, { capabilities: {} })).result);
  assert.equal(await list(), first);
  assert.equal(asked(), 4);
  await list();
  await list({ roots: {} });
  assert.equal(asked(), 4, 'the other session was told of no change');
});

test('a new policy does not show what it hides', async t => {
  const { valet, list, asked } = await start(t, 'version: 1\ndeadlines: { lists: 10m }\n');
  assert.match(await list(), /"stubborn"/);
  const path = valet.child.spawnargs[valet.child.spawnargs.indexOf('--policy') + 1];
  writeFileSync(path, 'version: 1\ndeadlines: { lists: 10m }\nrules: [ { match: { tool: stubborn }, hide: true } ]\n');
  valet.child.kill('SIGHUP');
  await until(() => valet.log.includes('"reloaded"'), 'the reload');
  assert.doesNotMatch(await list(), /"stubborn"/);
  assert.equal(asked(), 2);
});
