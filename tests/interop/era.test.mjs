// upstream.era: auto, with servers of both eras and some that take the question badly.
import test from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { Client as LegacyClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as LegacyHttp } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { alive, call, children, everything, fixture, freePort, makeClient, packaged, policyFile, program, scratch, serve, textOf, until } from './valet.mjs';

// A server that answers may need long to start, on a busy machine; silence is waited for.
const policy = 'version: 1\nupstream: { era: auto }\ndeadlines: { probe: 20s }\n';
const impatient = 'version: 1\nupstream: { era: auto }\ndeadlines: { probe: 3s }\n';
const accept = async () => ({ action: 'accept', content: { sure: 'yes', name: 'Ada' } });

async function startHttp(t, command, ready = /^(\d+)\n/m, env = {}) {
  const child = spawn(command[0], command.slice(1), { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  let out = '';
  child.stdout.on('data', data => { out += data; });
  child.stderr.on('data', data => { out += data; });
  t.after(() => child.kill('SIGKILL'));
  return Number(await until(() => ready.exec(out)?.[1], 'the server to listen'));
}

const servers = {
  'a modern command': { command: ['node', fixture('modern.mjs')], tool: 'confirm', era: 'modern' },
  'a legacy command': { command: ['node', fixture('asker.mjs')], tool: 'confirm', era: 'legacy' },
  'a modern server over HTTP': { http: t => startHttp(t, ['node', fixture('modern.mjs'), 'http']), path: '/', tool: 'confirm', era: 'modern' },
  'a legacy server over HTTP': { http: t => startHttp(t, ['node', fixture('http_asker.mjs')]), path: '/mcp', tool: 'on_post', era: 'legacy' },
};

for (const [name, { command = [], http, path, tool, era }] of Object.entries(servers))
  for (const face of ['stdio', 'http'])
    test(`${name}, in front of it ${face}`, { timeout: 30000 }, async t => {
      const args = http ? ['--upstream', `http://127.0.0.1:${await http(t)}${path}`] : [];
      const client = makeClient(everything, { 'elicitation/create': accept });
      if (face === 'http') {
        const valet = await serve(t, command, { args, policy });
        await client.connect(new StreamableHTTPClientTransport(new URL(valet.url)));
        assert.match(valet.log, new RegExp(`the server is ${era}"`));
        if (command.length) await until(() => children(valet.pid).length === 1, 'the process that was asked to be gone');
      } else {
        await client.connect(new StdioClientTransport({ command: program, stderr: 'inherit',
          args: ['--policy', policyFile(t, policy), ...args, '--log-level', 'error', ...(command.length ? ['--', ...command] : [])] }));
      }
      t.after(() => client.close());
      assert.equal(textOf(await client.callTool({ name: tool, arguments: { what: 'x' } })), 'deleted x yes');
    });

test('HTTP+SSE is legacy', { timeout: 30000 }, async t => {
  const port = await freePort();
  await startHttp(t, ['node', packaged('@modelcontextprotocol/server-everything/dist/index.js'), 'sse'], /running on port (\d+)/i, { PORT: String(port) });
  const valet = await serve(t, [], { policy, args: ['--upstream', `http://127.0.0.1:${port}/sse`] });
  const client = makeClient(everything, { 'elicitation/create': accept });
  await client.connect(new StreamableHTTPClientTransport(new URL(valet.url)));
  t.after(() => client.close());
  assert.match(textOf(await client.callTool({ name: 'trigger-elicitation-request', arguments: {} })), /Name: Ada/);
});

// Servers that end at any request before initialize, or say nothing.
for (const [name, reaction] of [['ends', 'process.exit(1)'], ['is silent', '']])
  test(`a legacy server that ${name} when it is asked`, { timeout: 30000 }, async t => {
    const path = join(scratch(t), 'server.mjs');
    writeFileSync(path, `
      import { createInterface } from 'node:readline';
      let open = false;
      const say = value => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...value }) + '\\n');
      createInterface({ input: process.stdin }).on('line', line => {
        const { id, method } = JSON.parse(line);
        if (method === 'initialize') { open = true; say({ id, result: { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } } }); }
        else if (!open) { ${reaction} }
        else if (method === 'tools/call') say({ id, result: { content: [{ type: 'text', text: 'called' }] } });
        else if (id !== undefined) say({ id, result: {} });
      });`);
    const valet = await serve(t, ['node', path], { policy: impatient });
    const all = await Promise.all([1, 2, 3].map(() => call(valet, 'any', {}, {}, { capabilities: {} })));
    for (const { result } of all) assert.equal(textOf(result), 'called');
    assert.equal(valet.log.split('"the server is legacy"').length, 2, 'it is asked once');
  });

test('a legacy client may come first', { timeout: 30000 }, async t => {
  const valet = await serve(t, ['node', fixture('asker.mjs')], { policy });
  const client = new LegacyClient({ name: 'old', version: '1' }, { capabilities: {} });
  await client.connect(new LegacyHttp(new URL(valet.url)));
  t.after(() => client.close());
  assert.match(textOf(await client.callTool({ name: 'plain', arguments: {} })), /plain/);
});

test('a server that is replaced is asked again', { timeout: 30000 }, async t => {
  const port = await freePort();
  const valet = await serve(t, [], { policy, args: ['--upstream', `http://127.0.0.1:${port}/mcp`] });
  const nobody = await call(valet, 'plain');
  assert.equal(nobody.error.code, -32603);
  const old = spawn('node', [fixture('http_asker.mjs')], { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, PORT: String(port) } });
  t.after(() => old.kill('SIGKILL'));
  await new Promise(resolve => old.stdout.once('data', resolve));
  assert.match(textOf((await until(async () => (await call(valet, 'plain')).result, 'the old server')) ), /plain/);
  old.kill('SIGKILL');
  await until(() => !alive(old.pid), 'its end');
  const young = spawn('node', [fixture('modern.mjs'), 'http'], { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, PORT: String(port) } });
  t.after(() => young.kill('SIGKILL'));
  await new Promise(resolve => young.stdout.once('data', resolve));
  await until(async () => (await call(valet, 'plain')).result, 'the new server');
  await until(() => /the server is modern/.test(valet.log), 'it to be known');
});
