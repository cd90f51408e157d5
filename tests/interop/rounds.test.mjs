// Handlers of the official v1 SDK that ask in every way, and what becomes of calls that nobody comes back for.
import test from 'node:test';
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { answerAll, call, children, connect, fixture, recorded, retry, scratch, serve, sleep, textOf, until } from './valet.mjs';

const asker = ['node', fixture('asker.mjs')];
const accept = content => ({ action: 'accept', content });

for (const face of ['stdio', 'http']) {
  test(`two questions at once are one round, over ${face}`, { timeout: 20000 }, async t => {
    let open = 0, most = 0;
    const client = await connect(t, face, asker, { handlers: { 'elicitation/create': async request => {
      most = Math.max(most, ++open);
      await sleep(50);
      open--;
      return accept(request.params.message === 'First?' ? { a: 'eins' } : { b: 'zwei' });
    } } });
    assert.equal(textOf(await client.callTool({ name: 'two_at_once', arguments: {} })), 'eins zwei');
    assert.equal(most, 2);
  });

  test(`three rounds, over ${face}`, { timeout: 20000 }, async t => {
    let n = 0;
    const client = await connect(t, face, asker, { handlers: { 'elicitation/create': async () => accept({ x: `answer${++n}` }) } });
    assert.equal(textOf(await client.callTool({ name: 'three_rounds', arguments: {} })), 'answer1 answer2 answer3');
  });

  test(`sampling after elicitation, over ${face}`, { timeout: 20000 }, async t => {
    const client = await connect(t, face, asker, { handlers: {
      'elicitation/create': async () => accept({ topic: 'ships' }),
      'sampling/createMessage': async request => ({ role: 'assistant', model: 'm', content: { type: 'text', text: request.params.messages[0].content.text.toUpperCase() } }),
    } });
    assert.equal(textOf(await client.callTool({ name: 'sample_after_elicit', arguments: {} })), 'WRITE ABOUT SHIPS');
  });
}

test('names are unique over the rounds, and the states differ', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker);
  const keys = [], states = [];
  let { result } = await call(valet, 'three_rounds');
  while (result.resultType === 'input_required') {
    keys.push(...Object.keys(result.inputRequests));
    states.push(result.requestState);
    ({ result } = await retry(valet, 'three_rounds', {}, result, answerAll(result, accept({ x: 'y' }))));
  }
  assert.equal(new Set(keys).size, 3);
  assert.equal(new Set(states).size, 3);
  assert.equal(textOf(result), 'y y y');
});

test('missing answers are asked for again, given ones are kept', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker);
  const first = (await call(valet, 'two_at_once')).result;
  const [a, b] = Object.keys(first.inputRequests);
  const keyOf = message => [a, b].find(key => first.inputRequests[key].params.message === message);
  const second = (await retry(valet, 'two_at_once', {}, first, { [keyOf('Second?')]: accept({ b: 'zwei' }), unknown: 5 })).result;
  assert.deepEqual(Object.keys(second.inputRequests), [keyOf('First?')]);
  const last = (await retry(valet, 'two_at_once', {}, second, { [keyOf('First?')]: accept({ a: 'eins' }) })).result;
  assert.equal(textOf(last), 'eins zwei');
});

test('a malformed answer names the key and the fault, and consumes nothing', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker);
  const { result } = await call(valet, 'confirm', { what: 'x' });
  const [key] = Object.keys(result.inputRequests);
  for (const bad of [12345, null, {}, { action: 'yes' }, { action: 'accept', content: [] }]) {
    const { error } = await retry(valet, 'confirm', { what: 'x' }, result, { [key]: bad });
    assert.equal(error.code, -32602);
    assert.match(error.message, new RegExp(`${key}.*`));
  }
  assert.equal((await retry(valet, 'confirm', { what: 'x' }, result, null)).status, 400);
  assert.equal(textOf((await retry(valet, 'confirm', { what: 'x' }, result, { [key]: accept({ sure: 'y' }) })).result), 'deleted x y');
});

test('a server that gives up gives its own result on the retry', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker);
  const { result } = await call(valet, 'impatient');
  await sleep(2000);
  const late = (await retry(valet, 'impatient', {}, result, answerAll(result, accept({ x: 'late' })))).result;
  assert.equal(late.isError, true);
  assert.match(textOf(late), /gave up.*timed out/i);
});

test('the patience of a server is learned: the next state is kept below it', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker);
  const first = (await call(valet, 'impatient')).result;
  await sleep(2000);
  await retry(valet, 'impatient', {}, first, answerAll(first, accept({ x: 'late' })));
  const second = (await call(valet, 'impatient')).result;
  await sleep(2500);
  const late = (await retry(valet, 'impatient', {}, second, answerAll(second, accept({ x: 'late' })))).result;
  assert.equal(textOf(late), 'got {"action":"cancel"}');
  assert.match(valet.log, /server-impatient/);
});

test('nobody comes back: the server gets cancel, not an error, and nothing is deleted', { timeout: 20000 }, async t => {
  const record = join(scratch(t), 'record');
  const valet = await serve(t, asker, { policy: 'version: 1\ndefaults: { park: 500ms }\n', env: { RECORD: record } });
  const { result } = await call(valet, 'confirm', { what: 'everything' });
  const [event] = await until(() => recorded(record).length && recorded(record), 'the abandoned call to end');
  assert.deepEqual(event, { event: 'confirm', what: 'everything', answer: { action: 'cancel' } });
  const { error } = await retry(valet, 'confirm', { what: 'everything' }, result, answerAll(result, accept({ sure: 'yes' })));
  assert.equal(error.code, -32602);
  assert.equal(error.data.reason, 'expired');
  assert.equal(recorded(record).length, 1);
});

test('a client that closes its stream cancels the call', { timeout: 20000 }, async t => {
  const record = join(scratch(t), 'record');
  const valet = await serve(t, asker, { env: { RECORD: record } });
  const stop = new AbortController();
  const pending = call(valet, 'stubborn', { ms: 2000 }, {}, { signal: stop.signal }).catch(() => 'closed');
  await until(() => recorded(record).some(event => event.event === 'stubborn-started'), 'the tool to start');
  stop.abort();
  assert.equal(await pending, 'closed');
  await until(() => recorded(record).some(event => event.event === 'stubborn-cancelled'), 'the cancellation', 1000);
  // The tool ignores it; the session serves others all the same.
  assert.equal(textOf((await call(valet, 'plain', { n: 1 })).result), 'plain {"n":1}');
});

test('notifications/cancelled cancels over stdio', { timeout: 20000 }, async t => {
  const record = join(scratch(t), 'record');
  process.env.RECORD = record;
  t.after(() => { delete process.env.RECORD; });
  const client = await connect(t, 'stdio', ['env', `RECORD=${record}`, ...asker]);
  const stop = new AbortController();
  const pending = client.callTool({ name: 'stubborn', arguments: { ms: 2000 } }, { signal: stop.signal }).catch(() => 'cancelled');
  await until(() => recorded(record).some(event => event.event === 'stubborn-started'), 'the tool to start');
  stop.abort('enough');
  assert.equal(await pending, 'cancelled');
  await until(() => recorded(record).some(event => event.event === 'stubborn-cancelled'), 'the cancellation', 1000);
  assert.equal(textOf(await client.callTool({ name: 'plain', arguments: {} })), 'plain {}');
});

test('two principals, twenty parked calls each: all answered, none crossed', { timeout: 60000 }, async t => {
  const record = join(scratch(t), 'record');
  const valet = await serve(t, asker, { env: { RECORD: record } });
  const parked = [];
  await Promise.all(['alice', 'bob'].map(async who => {
    for (let i = 0; i < 20; i++) {
      const options = { headers: { authorization: `Bearer ${who}` } };
      const what = `${who}-${i}`;
      const { result } = await call(valet, 'confirm', { what }, {}, options);
      assert.equal(result.resultType, 'input_required');
      assert.equal(Object.values(result.inputRequests)[0].params.message, `Delete ${what}?`);
      parked.push({ who, what, options, result });
    }
  }));
  parked.sort(() => Math.random() - 0.5);
  await Promise.all(parked.map(async ({ what, options, result }) => {
    const answer = await retry(valet, 'confirm', { what }, result, answerAll(result, accept({ sure: what })), options);
    assert.equal(textOf(answer.result), `deleted ${what} ${what}`);
  }));
  assert.equal(recorded(record).length, 40);
  assert.equal(children(valet.pid).length, 2, 'a session for each principal');
});

test('SIGTERM with parked calls: they fail closed, and no process is left', { timeout: 30000 }, async t => {
  const record = join(scratch(t), 'record');
  const valet = await serve(t, asker, { env: { RECORD: record } });
  await call(valet, 'confirm', { what: 'a' });
  await call(valet, 'confirm', { what: 'b' }, {}, { headers: { authorization: 'Bearer other' } });
  const pids = children(valet.pid);
  assert.equal(pids.length, 2);
  valet.child.kill('SIGTERM');
  assert.deepEqual(await valet.exited, { code: 0, signal: null });
  assert.deepEqual(recorded(record).map(event => event.answer), [{ action: 'cancel' }, { action: 'cancel' }]);
  const { alive } = await import('./valet.mjs');
  assert.deepEqual(pids.filter(alive), []);
});
