// The official conformance suite, every required scenario of 2026-07-28 and the pending ones of headers and schemas, against
// mcp-valet in front of a legacy server over each of the three transports. Its verdict counts as it is: no failure is expected.
import test from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { faults } from './schema.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const program = process.env.MCP_VALET ?? join(here, '../../build/mcp-valet');
const fixture = join(here, 'fixture-legacy.mjs');
const suite = join(here, 'node_modules/@modelcontextprotocol/conformance/dist/index.js');

function start(t, command, ready, env = {}) {
  const child = spawn(command[0], command.slice(1), { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  t.after(() => child.kill('SIGKILL'));
  return new Promise((resolve, reject) => {
    let out = '';
    const look = data => { out += data; const found = ready.exec(out); if (found) resolve(found[1]); };
    child.stdout.on('data', look);
    child.stderr.on('data', look);
    child.on('exit', code => reject(new Error(`${command[0]} ended with ${code}: ${out}`)));
  });
}

async function run(args) {
  const child = spawn(process.execPath, [suite, 'server', ...args], { stdio: ['ignore', 'pipe', 'pipe'], cwd: here });
  let out = '';
  child.stdout.on('data', data => { out += data; });
  child.stderr.on('data', data => { out += data; });
  const code = await new Promise(resolve => child.on('exit', resolve));
  return { code, out };
}

// What the suite wrote down: every check with its status.
function checks(dir) {
  return readdirSync(dir, { recursive: true }).filter(name => name.endsWith('checks.json'))
    .flatMap(name => JSON.parse(readFileSync(join(dir, name), 'utf8')).map(check => ({ ...check, scenario: dirname(name) })));
}

const upstreams = {
  stdio: async () => ['--', process.execPath, fixture],
  'Streamable HTTP': async (t, env) => ['--upstream', `http://127.0.0.1:${await start(t, [process.execPath, fixture, '--http'], /^(\d+)\n/m, env)}/mcp`],
  'HTTP+SSE': async (t, env) => ['--upstream', `http://127.0.0.1:${await start(t, [process.execPath, fixture, '--sse'], /^(\d+)\n/m, env)}/sse`],
};

for (const [name, upstream] of Object.entries(upstreams))
  test(`the required set of 2026-07-28, legacy server over ${name}`, { timeout: 300000 }, async t => {
    const out = mkdtempSync(join(tmpdir(), 'conformance-'));
    t.after(() => rmSync(out, { recursive: true, force: true }));
    const env = { RECORD: join(out, 'received') };
    const port = await start(t, [program, '--listen', '127.0.0.1:0', '--log-format', 'json', '--policy', join(here, 'policy.yaml'), ...await upstream(t, env)],
      /Streamable HTTP on 127\.0\.0\.1:(\d+)/, env);
    const verdict = await run(['--url', `http://127.0.0.1:${port}/mcp`, '--requirements', '2026-07-28', '-o', out]);
    const all = checks(out);
    const bad = all.filter(check => check.status === 'FAILURE' || check.status === 'WARNING')
      .filter(check => !/^(server-)?tasks-|http-custom-header/.test(check.scenario));
    t.diagnostic(`${all.filter(check => check.status === 'SUCCESS').length} checks passed`);
    assert.deepEqual(bad.map(check => `${check.scenario} ${check.id}: ${check.status} ${check.errorMessage ?? check.description}`), []);
    assert.equal(verdict.code, 0, verdict.out.slice(-3000));
    assert.ok(all.length > 100, `${all.length} checks ran`);
    // The suite holds every message that it gets against the schema of 2026-07-28; the server has got these.
    assert.ok(all.some(check => check.id === 'wire-schema-valid'));
    const received = readFileSync(env.RECORD, 'utf8').trim().split('\n').map(line => JSON.parse(line));
    assert.deepEqual(received.flatMap(({ message, asked }) => faults(message, asked)), []);
    for (const asked of ['elicitation/create', 'sampling/createMessage', 'roots/list']) assert.ok(received.some(one => one.asked === asked), asked);
  });

// Scenarios that the suite does not count yet: their checks do. A check that the suite skips proves nothing.
for (const [name, upstream] of Object.entries(upstreams))
  for (const [scenario, least] of Object.entries({ 'http-header-validation': 14, 'http-custom-header-server-validation': 10, 'json-schema-2020-12': 7 }))
    test(`${scenario} with mcp_headers: validate, legacy server over ${name}`, { timeout: 60000 }, async t => {
      const out = mkdtempSync(join(tmpdir(), 'conformance-'));
      t.after(() => rmSync(out, { recursive: true, force: true }));
      const port = await start(t, [program, '--listen', '127.0.0.1:0', '--log-format', 'json', '--policy', join(here, 'policy-headers.yaml'), ...await upstream(t)],
        /Streamable HTTP on 127\.0\.0\.1:(\d+)/);
      const verdict = await run(['--url', `http://127.0.0.1:${port}/mcp`, '--scenario', scenario, '--spec-version', '2026-07-28', '-o', out]);
      const all = checks(out);
      assert.deepEqual(all.filter(check => check.status !== 'SUCCESS').map(check => `${check.id}: ${check.status} ${check.errorMessage ?? check.description}`), [], verdict.out.slice(-3000));
      assert.ok(all.length >= least, `${all.length} checks ran: ${verdict.out.slice(-1000)}`);
    });

// The scenarios of the tasks extension. Left out are tasks-status-notifications, which checks nothing yet, and
// tasks-required-task-error: no legacy tool needs a client that knows tasks, so nothing has to be refused.
for (const [name, upstream] of Object.entries(upstreams))
  for (const [scenario, least] of Object.entries({ 'tasks-lifecycle': 9, 'tasks-capability-negotiation': 5, 'tasks-wire-fields': 4, 'tasks-request-state-removal': 3,
    'tasks-mrtr-input': 4, 'tasks-request-headers': 5, 'tasks-dispatch-and-envelope': 9, 'tasks-mrtr-composition': 2 }))
    test(`${scenario} with task_after, legacy server over ${name}`, { timeout: 60000 }, async t => {
      const out = mkdtempSync(join(tmpdir(), 'conformance-'));
      t.after(() => rmSync(out, { recursive: true, force: true }));
      const port = await start(t, [program, '--listen', '127.0.0.1:0', '--log-format', 'json', '--policy', join(here, 'policy-tasks.yaml'), ...await upstream(t)],
        /Streamable HTTP on 127\.0\.0\.1:(\d+)/);
      const verdict = await run(['--url', `http://127.0.0.1:${port}/mcp`, '--scenario', scenario, '--spec-version', '2026-07-28', '--force', '-o', out]);
      const all = checks(out);
      assert.deepEqual(all.filter(check => check.status !== 'SUCCESS').map(check => `${check.id}: ${check.status} ${check.errorMessage ?? check.description}`), [], verdict.out.slice(-3000));
      assert.ok(all.length >= least, `${all.length} checks ran: ${verdict.out.slice(-1000)}`);
    });

test('the schema finds what is wrong', () => {
  const one = { jsonrpc: '2.0', id: 1 };
  assert.deepEqual(faults({ ...one, method: 'tools/call', params: { name: 'x' } }), []);
  assert.deepEqual(faults({ ...one, result: { action: 'accept', content: {} } }, 'elicitation/create'), []);
  for (const [message, asked] of [[{ ...one, method: 'tools/call', params: {} }], [{ ...one, method: 'server/discover' }], [{ ...one, error: {} }],
    [{ ...one, result: { action: 'yes' } }, 'elicitation/create'], [{ ...one, result: {} }, 'roots/list']])
    assert.notDeepEqual(faults(message, asked), [], JSON.stringify(message));
});

// The suite's client scenarios of the legacy revisions, for the side of mcp-valet that plays the legacy client.
for (const scenario of ['initialize', 'tools_call', 'sse-retry', 'elicitation-sep1034-client-defaults', 'json-schema-2020-12-preservation'])
  test(`the upstream side as a legacy client: ${scenario}`, { timeout: 60000 }, async t => {
    const out = mkdtempSync(join(tmpdir(), 'conformance-'));
    t.after(() => rmSync(out, { recursive: true, force: true }));
    const child = spawn(process.execPath, [suite, 'client', '--command', `${process.execPath} ${join(here, 'driver.mjs')}`, '--scenario', scenario,
      '--spec-version', '2025-11-25', '-o', out], { stdio: ['ignore', 'pipe', 'pipe'], cwd: here, env: { ...process.env, MCP_VALET: program } });
    let text = '';
    child.stdout.on('data', data => { text += data; });
    child.stderr.on('data', data => { text += data; });
    const code = await new Promise(resolve => child.on('exit', resolve));
    const all = checks(out);
    assert.deepEqual(all.filter(check => check.status === 'FAILURE' || check.status === 'WARNING').map(check => `${check.id}: ${check.errorMessage ?? check.description}`), [], text.slice(-2000));
    assert.equal(code, 0, text.slice(-2000));
    assert.ok(all.some(check => check.status === 'SUCCESS'), text.slice(-2000));
  });
