// The inspector's command line as a modern and as a legacy client: it starts mcp-valet itself, or reaches it over HTTP
// while a call of another client is parked there.
import test from 'node:test';
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { answerAll, call, packaged, program, retry, scratch, serve, textOf } from './valet.mjs';

const inspector = packaged('@modelcontextprotocol/inspector/clients/launcher/build/index.js');
const server = ['node', packaged('@modelcontextprotocol/server-everything/dist/index.js')];

// Gives the result that the inspector prints.
async function inspect(t, target, era, method, args = []) {
  const home = scratch(t);
  const { stdout } = await promisify(execFile)('node',
    [inspector, '--cli', ...target, '--protocol-era', era, '--format', 'json', '--quiet', '--method', method, ...args],
    { timeout: 60000, env: { ...process.env, HOME: home, MCP_INSPECTOR_SECRET_STORE: 'memory' } });
  const printed = JSON.parse(stdout);
  return printed.result ?? printed;
}

async function tour(t, target, era) {
  const { tools } = await inspect(t, target, era, 'tools/list');
  assert.ok(tools.some(tool => tool.name === 'echo'));
  assert.equal(textOf(await inspect(t, target, era, 'tools/call', ['--tool-name', 'echo', '--tool-arg', 'message=hello'])), 'Echo: hello');
  const { resources } = await inspect(t, target, era, 'resources/list');
  const { contents } = await inspect(t, target, era, 'resources/read', ['--uri', resources[0].uri]);
  assert.equal(contents[0].uri, resources[0].uri);
  const { messages } = await inspect(t, target, era, 'prompts/get', ['--prompt-name', 'args-prompt', '--prompt-args', 'city=Ankh']);
  assert.match(messages[0].content.text, /Ankh/);
}

for (const era of ['modern', 'legacy', 'auto']) {
  test(`it starts mcp-valet, ${era}`, { timeout: 120000 }, async t => {
    const config = join(scratch(t), 'mcp.json');
    writeFileSync(config, JSON.stringify({ mcpServers: { everything: { command: program, args: ['--log-level', 'error', '--', ...server] } } }));
    await tour(t, ['--config', config, '--server', 'everything'], era);
  });

  test(`it reaches mcp-valet over HTTP, ${era}, beside a parked call`, { timeout: 120000 }, async t => {
    const valet = await serve(t, server);
    const { result } = await call(valet, 'trigger-elicitation-request');
    assert.equal(result.resultType, 'input_required');
    await tour(t, [valet.url, '--transport', 'http'], era);
    const done = await retry(valet, 'trigger-elicitation-request', {}, result, answerAll(result, { action: 'accept', content: { name: 'Ada' } }));
    assert.match(textOf(done.result), /Name: Ada/);
  });
}
