// The migration report of a session of traffic: it names what asked and what did not, says nothing of what was answered,
// and what suggest-policy makes of it is a policy that lets the same traffic through.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { watched } from './watch.mjs';
import { everything, fixture, makeClient, program, scratch, sleep, textOf } from './valet.mjs';

const asker = ['node', fixture('asker.mjs')];

function run(...args) {
  const { status, stdout, stderr } = spawnSync(program, args, { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return stdout;
}

async function use(t, valet) {
  const client = makeClient(everything, {
    'elicitation/create': async () => { await sleep(100); return { action: 'accept', content: { topic: 'confidential', x: 'confidential' } }; },
    'sampling/createMessage': async () => ({ role: 'assistant', model: 'm', content: { type: 'text', text: 'confidential' } }),
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(valet.url)));
  t.after(() => client.close());
  await client.callTool({ name: 'sample_after_elicit', arguments: {} });
  await client.callTool({ name: 'three_rounds', arguments: {} });
  return textOf(await client.callTool({ name: 'plain', arguments: { n: 1 } }));
}

test('the report names the right tools, and the suggested policy is accepted', { timeout: 30000 }, async t => {
  const socket = join(scratch(t), 'admin');
  const valet = await watched(t, asker, { args: ['--admin', `unix:${socket}`] });
  const plain = await use(t, valet);

  const json = run('report', '--json', '--admin', `unix:${socket}`);
  assert.doesNotMatch(json, /confidential/);
  const entry = name => JSON.parse(json).entries.find(row => row.name === name);
  const both = entry('sample_after_elicit'), three = entry('three_rounds'), none = entry('plain');
  assert.equal(both.asked.elicitation.answered, 1);
  assert.equal(both.asked.sampling.answered, 1);
  assert.equal(both.most_rounds, 2);
  assert.equal(both.forms.length, 1);
  assert.match(both.forms[0].fields, /^topic\??  ?string$|^topic\?? string$/);
  assert.equal(three.most_rounds, 3);
  assert.equal(three.people_count, 3);
  assert.ok(three.people_longest_ms >= 100 && three.people_ms >= 300, JSON.stringify(three));
  assert.equal(none.rounds, 0);
  assert.equal(none.calls.answered, 1);

  const text = run('report', '--admin', `unix:${socket}`);
  const [todo, done] = text.split('Nothing to change');
  assert.match(todo, /^tool three_rounds$[^]*^tool sample_after_elicit$/m); // in order of traffic
  assert.match(todo, /asked: sampling \(1\)/);
  assert.doesNotMatch(todo, /^tool plain$/m);
  assert.match(done, /tool plain/);
  assert.match(text, /^ *lists and all other requests$/m);
  assert.doesNotMatch(done, /three_rounds|sample_after_elicit/);

  const file = join(scratch(t), 'report.json'), policy = join(scratch(t), 'policy.yaml');
  writeFileSync(file, json);
  assert.equal(run('report', '--file', file), text);
  writeFileSync(policy, run('suggest-policy', '--file', file));
  assert.equal(run('check-policy', policy), `${policy}: ok\n`);
  assert.match(run('explain', '--policy', policy, 'tool', 'three_rounds'), /sampling: deny/);
  assert.match(run('explain', '--policy', policy, 'tool', 'sample_after_elicit'), /sampling: forward/);
  // With what stands in comments, too: the same traffic gets through.
  const whole = readFileSync(policy, 'utf8').replace(/^#( {2}- match.*\n)#( {4}asks: never)/gm, '$1$2');
  assert.match(whole, /^ {4}asks: never/m);
  const again = await watched(t, asker, { policy: whole });
  assert.equal(await use(t, again), plain);
});

test('names that are no words give a valid policy as well', { timeout: 30000 }, async t => {
  const names = ['quote"d', 'back\\slash', 'a: b', '#x', 'ünï \u2028code', '- x', '{{', '*', 'a?', '?b', ''];
  const zero = { forwarded: 0 };
  const entries = names.map(name => ({ subject: 'tool', name, calls: { answered: 1 }, rounds: 1, most_rounds: 1,
    people_longest_ms: 3600e3, asked: { elicitation: { forwarded: 1 }, sampling: zero, roots: zero } }));
  const file = join(scratch(t), 'report.json'), policy = join(scratch(t), 'policy.yaml');
  writeFileSync(file, JSON.stringify({ version: 1, entries }));
  const text = run('suggest-policy', '--file', file);
  writeFileSync(policy, text);
  assert.match(text, /park: 120m/);
  assert.doesNotMatch(text, /"(\*|a\?|\?b|)" }/); // nothing can name these
  assert.equal(run('check-policy', policy), `${policy}: ok\n`);
  assert.match(run('explain', '--policy', policy, 'tool', 'quote"d'), /park: 2h|park: 120m/);
});

test('what is no report, and nobody there, are errors of one line', t => {
  const file = join(scratch(t), 'x');
  writeFileSync(file, '{"version":2}');
  for (const args of [['--file', file], ['--file', `${file}y`], ['--admin', `unix:${file}`], ['--admin', '127.0.0.1:1']]) {
    const { status, stdout, stderr } = spawnSync(program, ['report', ...args], { encoding: 'utf8' });
    assert.equal(status, 1);
    assert.equal(stdout, '');
    assert.match(stderr, /^mcp-valet: [^\n]+\n$/);
  }
});
