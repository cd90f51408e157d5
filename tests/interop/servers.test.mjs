// The official client, pinned to 2026-07-28, with unmodified legacy servers, over both faces.
import test from 'node:test';
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { connect, packaged, scratch, sleep, textOf } from './valet.mjs';

const everythingServer = ['node', packaged('@modelcontextprotocol/server-everything/dist/index.js')];
const filesystemServer = ['node', packaged('@modelcontextprotocol/server-filesystem/dist/index.js')];
const kubernetesServer = [packaged('kubernetes-mcp-server-linux-amd64/bin/kubernetes-mcp-server-linux-amd64')];

for (const face of ['stdio', 'http']) {
  test(`everything over ${face}`, { timeout: 60000 }, async t => {
    const asked = [];
    const client = await connect(t, face, everythingServer, { handlers: {
      'elicitation/create': async request => { asked.push(request.params); return { action: 'accept', content: { name: 'Ada', check: true, integer: 42 } }; },
      'sampling/createMessage': async request => { asked.push(request.params); return { role: 'assistant', model: 'm', content: { type: 'text', text: 'sampled words' } }; },
      'roots/list': async () => ({ roots: [{ uri: 'file:///srv/project', name: 'project' }] }),
    } });

    const tools = (await client.listTools()).tools;
    assert.ok(tools.some(tool => tool.name === 'trigger-elicitation-request'), 'the elicitation tool is there');
    assert.ok(tools.every(tool => !('execution' in tool)), 'execution is no part of 2026-07-28');

    assert.match(textOf(await client.callTool({ name: 'trigger-sampling-request', arguments: { prompt: 'p', maxTokens: 7 } })), /sampled words/);
    assert.equal(asked.at(-1).maxTokens, 7);
    assert.match(textOf(await client.callTool({ name: 'trigger-elicitation-request', arguments: {} })), /Name: Ada/);
    assert.ok(Object.keys(asked.at(-1).requestedSchema.properties).length > 5, 'all field types came through');
    assert.match(textOf(await client.callTool({ name: 'get-roots-list', arguments: {} })), /file:\/\/\/srv\/project/);
    assert.match(textOf(await client.callTool({ name: 'trigger-url-elicitation', arguments: { url: 'https://example.com/x', message: 'go' } })), /./);

    const progress = [];
    await client.callTool({ name: 'trigger-long-running-operation', arguments: { duration: 0.6, steps: 3 } }, { onprogress: p => progress.push(p.progress) });
    assert.ok(progress.length >= 2 && progress.every((value, i) => i === 0 || value > progress[i - 1]), `progress ${progress}`);

    assert.equal((await client.callTool({ name: 'get-sum', arguments: { a: 2, b: 40 } })).content[0].text.includes('42'), true);
    const resources = (await client.listResources()).resources;
    assert.ok(resources.length > 0);
    assert.equal((await client.readResource({ uri: resources[0].uri })).contents[0].uri, resources[0].uri);
    assert.ok((await client.listResourceTemplates()).resourceTemplates.length > 0);
    const prompts = (await client.listPrompts()).prompts;
    assert.ok(prompts.length > 0);
    const simple = prompts.find(prompt => !prompt.arguments?.some(argument => argument.required));
    assert.ok((await client.getPrompt({ name: simple.name })).messages.length > 0);
    const completing = prompts.find(prompt => prompt.name.includes('complet'));
    if (completing) {
      const argument = completing.arguments[0].name;
      const completion = await client.complete({ ref: { type: 'ref/prompt', name: completing.name }, argument: { name: argument, value: '' } });
      assert.ok(Array.isArray(completion.completion.values));
    }
  });

  test(`a tool that requires a task, over ${face}`, { timeout: 60000 }, async t => {
    let questions = 0;
    const client = await connect(t, face, everythingServer, { handlers: {
      'elicitation/create': async () => { questions++; return { action: 'accept', content: {} }; },
      'sampling/createMessage': async () => ({ role: 'assistant', model: 'm', content: { type: 'text', text: 's' } }),
      'roots/list': async () => ({ roots: [] }),
    } });
    await client.listTools();
    const result = await client.callTool({ name: 'simulate-research-query', arguments: { topic: 'bridges', ambiguous: true } });
    assert.match(textOf(result), /Research Report: bridges/);
    assert.equal(questions, 1);
  });

  test(`a declined elicitation, over ${face}`, { timeout: 30000 }, async t => {
    const client = await connect(t, face, everythingServer, { capabilities: { elicitation: { form: {} } },
      handlers: { 'elicitation/create': async () => ({ action: 'decline' }) } });
    assert.match(textOf(await client.callTool({ name: 'trigger-elicitation-request', arguments: {} })), /declined/i);
  });

  for (const first of ['the call comes first', 'the list comes first']) {
    test(`filesystem is governed by the client's roots, over ${face}: ${first}`, { timeout: 30000 }, async t => {
      const dir = scratch(t);
      mkdirSync(join(dir, 'in'));
      mkdirSync(join(dir, 'out'));
      writeFileSync(join(dir, 'in/a.txt'), 'inside');
      writeFileSync(join(dir, 'out/b.txt'), 'outside');
      const client = await connect(t, face, filesystemServer, { capabilities: { roots: {} },
        handlers: { 'roots/list': async () => ({ roots: [{ uri: pathToFileURL(join(dir, 'in')).href, name: 'in' }] }) } });
      if (first === 'the list comes first') {
        await client.listTools();
        await sleep(500);
      }
      const read = path => client.callTool({ name: 'read_text_file', arguments: { path } });
      assert.equal((await read(join(dir, 'in/a.txt'))).content[0].text, 'inside');
      const outside = await read(join(dir, 'out/b.txt'));
      assert.equal(outside.isError, true);
      assert.match(textOf(outside), /denied/i);
      assert.match(textOf(await client.callTool({ name: 'list_allowed_directories', arguments: {} })), new RegExp(join(dir, 'in')));
    });
  }

  for (const action of ['accept', 'decline']) {
    test(`kubernetes, whose ids collide with ours, over ${face}: ${action}`, { timeout: 30000 }, async t => {
      const dir = scratch(t);
      const config = join(dir, 'config.toml');
      writeFileSync(config, 'confirmation_fallback = "deny"\n[[confirmation_rules]]\ntool = "configuration_view"\nmessage = "Really?"\n');
      const kubeconfig = join(dir, 'kubeconfig');
      writeFileSync(kubeconfig, 'apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]\n' +
        'contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\nusers: [{name: u, user: {token: t}}]\n');
      const asked = [];
      const client = await connect(t, face, [...kubernetesServer, '--config', config, '--kubeconfig', kubeconfig], {
        capabilities: { elicitation: { form: {} } },
        handlers: { 'elicitation/create': async request => { asked.push(request.params); return action === 'accept' ? { action, content: {} } : { action }; } } });
      const result = await client.callTool({ name: 'configuration_view', arguments: {} });
      assert.equal(asked.length, 1);
      assert.equal(asked[0].message, 'Really?');
      assert.deepEqual(asked[0].requestedSchema.properties, {});
      assert.equal(Boolean(result.isError), action === 'decline');
      if (action === 'accept') assert.match(textOf(result), /current-context: x/);
    });
  }
}
