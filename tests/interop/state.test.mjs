// The request state: what it brings back, and everything that it must not (invariants 2 and 4).
import test from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync, chmodSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { answerAll, call, fixture, program, recorded, retry, scratch, serve, sleep, textOf } from './valet.mjs';

const asker = ['node', fixture('asker.mjs')];
const accept = content => ({ action: 'accept', content });
const args = { what: 'it' };
const alice = { headers: { authorization: 'Bearer alice' } };

async function park(t, options) {
  const record = join(scratch(t), 'record');
  const valet = await serve(t, asker, { ...options, env: { RECORD: record } });
  const { result } = await call(valet, 'confirm', args, {}, alice);
  return { valet, record, result, answers: answerAll(result, accept({ sure: 'yes' })) };
}

function assertRefused({ status, error }, reason) {
  assert.equal(error?.code, -32602);
  assert.equal(error.data.reason, reason);
  assert.match(error.message, /send the request again without requestState/);
  assert.equal(status, 200);
}

const changes = {
  'any changed byte': 'unverifiable', 'an added byte': 'unverifiable', 'a missing byte': 'unverifiable', 'an empty state': 'unverifiable',
  'another principal': 'mismatch', 'no principal': 'mismatch', 'other arguments': 'mismatch', 'another tool': 'mismatch',
};

test('whatever is not the right state is refused, and the parked call is untouched', { timeout: 60000 }, async t => {
  const { valet, record, result, answers } = await park(t);
  const state = result.requestState;
  const send = (requestState, tool = 'confirm', a = args, options = alice) =>
    call(valet, tool, a, { inputResponses: answers, requestState }, options);
  for (let i = 0; i < state.length; i++) {
    const other = state[i] === 'A' ? 'B' : 'A';
    assertRefused(await send(state.slice(0, i) + other + state.slice(i + 1)), changes['any changed byte']);
  }
  assertRefused(await send(state + 'A'), 'unverifiable');
  assertRefused(await send(state + '-TAMPERED'), 'unverifiable');
  assertRefused(await send(state.slice(0, -1)), 'unverifiable');
  assertRefused(await send(''), 'unverifiable');
  assertRefused(await send(state, 'confirm', args, { headers: { authorization: 'Bearer bob' } }), 'mismatch');
  assertRefused(await send(state, 'confirm', args, {}), 'mismatch');
  assertRefused(await send(state, 'confirm', { what: 'something else' }), 'mismatch');
  assertRefused(await send(state, 'plain'), 'mismatch');
  assert.deepEqual(recorded(record), []);
  assert.equal(textOf((await send(state)).result), 'deleted it yes');
  assert.equal(recorded(record).length, 1);
  assert.ok(!valet.log.includes(state), 'no state in the log');
  assert.ok(!valet.log.includes('alice'), 'no credentials in the log');
});

test('the same retry twice, one after the other: the same outcome twice, one answer upstream', { timeout: 20000 }, async t => {
  const { valet, record, result, answers } = await park(t);
  const first = await retry(valet, 'confirm', args, result, answers, alice);
  const second = await retry(valet, 'confirm', args, result, answers, alice);
  assert.equal(textOf(first.result), 'deleted it yes');
  assert.deepEqual(second.result, first.result);
  assert.equal(recorded(record).length, 1);
  assertRefused(await retry(valet, 'confirm', args, result, answerAll(result, { action: 'decline' }), alice), 'used');
  assert.equal(recorded(record).length, 1);
});

test('the same retry twice at the same time: the same outcome twice, one answer upstream', { timeout: 20000 }, async t => {
  const { valet, record, result, answers } = await park(t);
  const both = await Promise.all([1, 2].map(() => retry(valet, 'confirm', args, result, answers, alice)));
  assert.equal(textOf(both[0].result), 'deleted it yes');
  assert.deepEqual(both[1].result, both[0].result);
  assert.equal(recorded(record).length, 1);
});

test('a lost round is delivered again', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker);
  const first = (await call(valet, 'three_rounds')).result;
  const answers = answerAll(first, accept({ x: '1' }));
  const second = (await retry(valet, 'three_rounds', {}, first, answers)).result;
  const again = (await retry(valet, 'three_rounds', {}, first, answers)).result;
  assert.deepEqual(again, second);
  assertRefused(await retry(valet, 'three_rounds', {}, first, answerAll(first, accept({ x: 'other' }))), 'used');
});

test('an expired state is refused', { timeout: 20000 }, async t => {
  const { valet, record, result, answers } = await park(t, { policy: 'version: 1\ndefaults: { park: 300ms }\n' });
  await sleep(600);
  assertRefused(await retry(valet, 'confirm', args, result, answers, alice), 'expired');
  assert.deepEqual(recorded(record).map(event => event.answer), [{ action: 'cancel' }]);
});

test('a state of another instance with the same keys is refused with words that say so', { timeout: 20000 }, async t => {
  const keys = join(scratch(t), 'keys');
  writeFileSync(keys, execFileSync(program, ['keygen']), { mode: 0o600 });
  chmodSync(keys, 0o600);
  const { result, answers } = await park(t, { args: ['--key-file', keys] });
  const other = await serve(t, asker, { args: ['--key-file', keys] });
  assertRefused(await retry(other, 'confirm', args, result, answers, alice), 'other_instance');
  const stranger = await serve(t, asker);
  assertRefused(await retry(stranger, 'confirm', args, result, answers, alice), 'unverifiable');
});

// The class of a refusal is for who has the right to the state. Nobody else learns whether it is good, used, expired or lost.
test('a stranger learns nothing of a state, and a forger nothing of how it was found out', { timeout: 30000 }, async t => {
  const policy = 'version: 1\ndefaults: { park: 2s }\ndeadlines: { redeliver: 0s }\n';
  const { valet, result: used, answers } = await park(t, { policy });
  assert.equal(textOf((await retry(valet, 'confirm', args, used, answers, alice)).result), 'deleted it yes');
  const { result: late } = await call(valet, 'confirm', args, {}, alice);
  await sleep(2200);
  const { result: good } = await call(valet, 'confirm', args, {}, alice);
  const refusal = async (requestState, options, a = args) => (await call(valet, 'confirm', a, { inputResponses: answers, requestState }, { ...options, id: 7 })).text;
  for (const [who, a] of [[{ headers: { authorization: 'Bearer bob' } }, args], [{}, args], [alice, { what: 'else' }]]) {
    const texts = await Promise.all([used, late, good].map(({ requestState }) => refusal(requestState, who, a)));
    assert.match(texts[0], /"reason":"mismatch"/);
    assert.deepEqual(new Set(texts).size, 1, texts.join('\n'));
  }
  const bytes = Buffer.from(good.requestState, 'base64url');
  const forged = [[0, 1], [1, 1], [5, 1], [29, 1], [60, 1], [bytes.length - 1, 1]].map(([at, bit]) => {
    const copy = Buffer.from(bytes);
    copy[at] ^= bit; // version, key, nonce, kind, contents, tag
    return copy.toString('base64url');
  });
  const texts = await Promise.all([...forged, '', 'A', 'not base64!', good.requestState + '=', good.requestState.slice(4)].flatMap(state => [refusal(state, alice), refusal(state, {})]));
  assert.match(texts[0], /"reason":"unverifiable"/);
  assert.deepEqual(new Set(texts).size, 1, [...new Set(texts)].join('\n'));
  assert.equal(textOf((await retry(valet, 'confirm', args, good, answers, alice)).result), 'deleted it yes');
});

test('a retry that declares less is not asked for it', { timeout: 20000 }, async t => {
  const valet = await serve(t, asker);
  const first = (await call(valet, 'sample_after_elicit')).result;
  const answer = await retry(valet, 'sample_after_elicit', {}, first, answerAll(first, accept({ topic: 't' })), { capabilities: { elicitation: {} } });
  assert.equal(answer.status, 400);
  assert.equal(answer.error.code, -32021);
  assert.deepEqual(answer.error.data.requiredCapabilities, { sampling: {} });
});

test('rerun: if-lost answers again what was answered before', { timeout: 30000 }, async t => {
  const policy = 'version: 1\nrules:\n  - match: { tool: three_rounds }\n    rerun: if-lost\n';
  const valet = await serve(t, asker, { policy });
  const asked = [];
  let { result } = await call(valet, 'three_rounds');
  const { children } = await import('./valet.mjs');
  for (const round of [1, 2, 3]) {
    asked.push(...Object.values(result.inputRequests).map(request => request.params.message));
    if (round === 3) {
      process.kill(children(valet.pid)[0], 'SIGKILL');
      await sleep(300);
    }
    ({ result } = await retry(valet, 'three_rounds', {}, result, answerAll(result, accept({ x: String(round) }))));
  }
  assert.equal(textOf(result), '1 2 3');
  assert.deepEqual(asked, ['Question 1?', 'Question 2?', 'Question 3?']);
});

for (const rerun of ['if-lost', 'always']) {
  test(`rerun: ${rerun}, the rounds in another process with the same keys`, { timeout: 30000 }, async t => {
    const keys = join(scratch(t), 'keys');
    writeFileSync(keys, execFileSync(program, ['keygen']), { mode: 0o600 });
    const options = { policy: `version: 1\nrules:\n  - match: { tool: three_rounds }\n    rerun: ${rerun}\n`, args: ['--key-file', keys] };
    const valets = [await serve(t, asker, options), await serve(t, asker, options)];
    let { result } = await call(valets[0], 'three_rounds');
    const asked = [];
    for (let round = 1; result.resultType === 'input_required' && round < 9; round++) {
      asked.push(...Object.values(result.inputRequests).map(request => request.params.message));
      ({ result } = await retry(valets[round % 2], 'three_rounds', {}, result, answerAll(result, accept({ x: String(round) }))));
    }
    assert.equal(textOf(result), '1 2 3');
    assert.deepEqual(asked, ['Question 1?', 'Question 2?', 'Question 3?']);
  });
}
