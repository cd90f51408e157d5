// Trace context (W3C; `traceparent`, `tracestate`, `baggage` in _meta) passes to the legacy server, and its trace id stands in
// the log lines of a call: that of the newest request, because every request stands alone.
import test from 'node:test';
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { answerAll, call, fixture, recorded, retry, scratch, serve, textOf, until } from './valet.mjs';

const id = digit => digit.repeat(32);
const context = digit => ({ traceparent: `00-${id(digit)}-${'b'.repeat(16)}-01`, tracestate: 'vendor=1', baggage: 'user=x' });
const accept = { action: 'accept', content: { sure: 'yes' } };
const lines = valet => valet.log.split('\n').slice(0, -1).filter(line => line.startsWith('{')).map(line => JSON.parse(line));
const finished = (valet, count) => until(() => traces(valet, 'call-finished').length === count, 'the log');
const traces = (valet, event) => lines(valet).filter(line => line.event === event).map(line => line.trace);

test('the lines of a call carry the trace id of its newest request', { timeout: 20000 }, async t => {
  const valet = await serve(t, ['node', fixture('asker.mjs')]);
  const { result } = await call(valet, 'confirm', { what: 'x' }, { _meta: context('1') });
  const answers = answerAll(result, accept);
  await call(valet, 'confirm', { what: 'y' }, { _meta: context('2'), inputResponses: answers, requestState: result.requestState });
  const done = await call(valet, 'confirm', { what: 'x' }, { _meta: context('3'), inputResponses: answers, requestState: result.requestState });
  assert.equal(textOf(done.result), 'deleted x yes');
  await finished(valet, 1);
  assert.deepEqual(['call-sent', 'server-request', 'call-parked', 'state-refused', 'call-resumed', 'call-finished'].map(event => traces(valet, event)),
    [[id('1')], [id('1')], [id('1')], [id('2')], [id('3')], [id('3')]]);
});

test('what is no traceparent is not logged, and a retry without one takes none over', { timeout: 20000 }, async t => {
  const valet = await serve(t, ['node', fixture('asker.mjs')]);
  await call(valet, 'plain', {}, { _meta: { traceparent: `00-${id('G')}-${'b'.repeat(16)}-01` } });
  await call(valet, 'plain', {}, { _meta: { traceparent: 7 } });
  const { result } = await call(valet, 'confirm', { what: 'x' }, { _meta: context('1') });
  await retry(valet, 'confirm', { what: 'x' }, result, answerAll(result, accept));
  await finished(valet, 3);
  assert.deepEqual(traces(valet, 'call-finished'), [undefined, undefined, undefined]);
  assert.deepEqual(traces(valet, 'call-parked'), [id('1')]);
});

test('trace context passes to the server', { timeout: 20000 }, async t => {
  const record = join(scratch(t), 'record');
  const valet = await serve(t, ['node', fixture('raw.mjs')], { env: { RECORD: record } });
  await call(valet, 'echo', {}, { _meta: context('1') });
  const sent = recorded(record).map(line => JSON.parse(line)).find(message => message.method === 'tools/call');
  assert.deepEqual(sent.params._meta, context('1'));
});
