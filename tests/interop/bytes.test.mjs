// Payloads pass byte for byte (invariant 5): number spelling, key order, duplicate keys, escapes, size.
import test from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fixture, meta, post, program, scratch, serve } from './valet.mjs';

const raw = ['node', fixture('raw.mjs')];
const payloads = {
  'int64 max': '{"n":9223372036854775807}',
  'beyond int64': '{"n":18446744073709551616}',
  'beyond double': '{"n":1e400}',
  'negative zero': '{"n":-0}',
  'trailing zero': '{"n":1.0}',
  'exponent': '{"n":0.1e1}',
  'duplicate keys': '{"a":1,"b":2,"a":3}',
  'key order': '{"z":1,"a":2,"0":3}',
  'lone surrogate': '{"s":"\\ud800"}',
  'nul': '{"s":"\\u0000"}',
  'escapes': '{"s":"\\/\\u00e9\\u0041\u00e9\\n\\ud83d\\ude00\u{1F600}"}',
  'white space': '{ "a" : [ 1 , 2 ] }',
  'names of ours': '{"_meta":{"progressToken":1},"requestState":"x","inputResponses":{},"task":{},"x-mcp-header":"y"}',
  'five megabytes': `{"s":"${'0123456789abcdef'.repeat(5 * 65536)}"}`,
};

// Speaks to mcp-valet in lines, without an SDK that would read and write numbers its own way.
function open(t, face, command, record) {
  const env = { ...process.env, RECORD: record };
  if (face === 'http') {
    let valet;
    return async line => {
      valet ??= await serve(t, command, { env: { RECORD: record } });
      const name = /"name":"(echo|ask)"/.exec(line)[1];
      return (await post(valet, line, { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': name })).text;
    };
  }
  const child = spawn(program, ['--log-level', 'error', '--', ...command], { stdio: ['pipe', 'pipe', 'inherit'], env });
  const waiting = [];
  createInterface({ input: child.stdout }).on('line', line => waiting.shift()(line));
  t.after(() => child.kill('SIGKILL'));
  return line => new Promise(resolve => { waiting.push(resolve); child.stdin.write(line + '\n'); });
}

let id = 1;
const request = (name, payload, more = '') => `{"jsonrpc":"2.0","id":${id++},"method":"tools/call","params":{"name":"${name}",` +
  `"arguments":${payload},"_meta":${JSON.stringify(meta({ elicitation: {} }))}${more}}}`;

for (const face of ['stdio', 'http'])
  for (const [what, payload] of Object.entries(payloads))
    test(`${what}, over ${face}`, { timeout: 30000 }, async t => {
      const record = join(scratch(t), 'record');
      const say = open(t, face, raw, record);
      const echoed = await say(request('echo', payload));
      assert.ok(echoed.includes(`"structuredContent":${payload}`), `result: ${echoed.slice(0, 300)}`);
      const asked = await say(request('ask', payload));
      assert.ok(asked.includes(`"requestedSchema":${payload}`), `input request: ${asked.slice(0, 300)}`);
      const state = /"requestState":"([^"]+)","_meta":\{"io.modelcontext/.exec(asked)[1];
      const key = /"inputRequests":\{"([^"]+)"/.exec(asked)[1];
      const answer = `{"action":"accept","content":${payload}}`;
      const answered = await say(request('ask', payload, `,"inputResponses":{"${key}":${answer}},"requestState":"${state}"`));
      assert.ok(answered.includes(`"structuredContent":${answer}`), `input response: ${answered.slice(0, 300)}`);
      const lines = readFileSync(record, 'utf8').split('\n').filter(Boolean).map(line => JSON.parse(line));
      assert.ok(lines.some(line => line.includes(`"arguments":${payload}`)), 'arguments upstream');
      assert.ok(lines.some(line => line.includes(`"id":"q\\u0031","result":${answer}`)), 'the answer upstream, to the id as it was spelled');
    });
