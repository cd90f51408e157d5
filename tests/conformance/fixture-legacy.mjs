// A legacy server (2025-11-25) of bare messages, with the tools, prompts and resources that the official suite looks for.
// It asks in the middle of its calls, as legacy servers do. Transports: stdio (no argument), --http, --sse (print a port).
// RECORD names a file that gets a line for each message received, with the method of the request that it answers.
import { appendFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';

const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const wav = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=';
const text = value => ({ content: [{ type: 'text', text: value }] });
const form = (message, key, type = 'string') => ['elicitation/create', { message, requestedSchema: { type: 'object', properties: { [key]: { type } }, required: [key] } }];
const sample = (question, maxTokens) => ['sampling/createMessage', { messages: [{ role: 'user', content: { type: 'text', text: question } }], maxTokens }];
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

const tools = {
  test_simple_text: () => text('This is a simple text response for testing.'),
  test_image_content: () => ({ content: [{ type: 'image', data: png, mimeType: 'image/png' }] }),
  test_audio_content: () => ({ content: [{ type: 'audio', data: wav, mimeType: 'audio/wav' }] }),
  test_embedded_resource: () => ({ content: [{ type: 'resource', resource: { uri: 'test://embedded-resource', mimeType: 'text/plain', text: 'This is an embedded resource content.' } }] }),
  test_multiple_content_types: () => ({ content: [{ type: 'text', text: 'Multiple content types test:' }, { type: 'image', data: png, mimeType: 'image/png' },
    { type: 'resource', resource: { uri: 'test://mixed-content-resource', mimeType: 'application/json', text: '{"test":"data","value":123}' } }] }),
  test_error_handling: () => ({ ...text('This tool intentionally returns an error for testing'), isError: true }),
  async test_tool_with_progress(peer, { _meta }) {
    for (const progress of [0, 50, 100]) {
      if (_meta?.progressToken !== undefined) peer.notify('notifications/progress', { progressToken: _meta.progressToken, progress, total: 100 });
      await sleep(20);
    }
    return text('done');
  },
  async test_missing_capability(peer) { const answer = await peer.ask(...sample('Say hello', 10)); return text(`Success ${answer.content?.text}`); },
  async test_streaming_elicitation(peer, { _meta }) {
    if (_meta?.progressToken !== undefined) peer.notify('notifications/progress', { progressToken: _meta.progressToken, progress: 1 });
    return text(`Confirmed: ${JSON.stringify(await peer.ask(...form('Please confirm', 'ok', 'boolean')))}`);
  },
  test_logging_tool(peer) { peer.notify('notifications/message', { level: 'info', data: 'a message' }); return text('Logging evaluated'); },
  test_trigger_tool_change(peer) { setTimeout(() => peer.notify('notifications/tools/list_changed', undefined, true), 10); return text('Mutation triggered'); },
  test_trigger_prompt_change(peer) { setTimeout(() => peer.notify('notifications/prompts/list_changed', undefined, true), 10); return text('Mutation triggered'); },
  async test_input_required_result_elicitation(peer) { return text(`Hello, ${(await peer.ask(...form('What is your name?', 'name'))).content?.name}!`); },
  async test_input_required_result_sampling(peer) { return text((await peer.ask(...sample('What is the capital of France?', 100))).content.text); },
  async test_input_required_result_list_roots(peer) { return text(`Found ${(await peer.ask('roots/list', {})).roots.length} root(s)`); },
  async test_input_required_result_request_state(peer) { await peer.ask(...form('Please confirm', 'ok', 'boolean')); return text('state-ok'); },
  async test_input_required_result_multiple_inputs(peer) {
    const [name, greeting, roots] = await Promise.all([peer.ask(...form('What is your name?', 'name')), peer.ask(...sample('Generate a greeting', 50)), peer.ask('roots/list', {})]);
    return text(`Name: ${name.content?.name}; Greeting: ${greeting.content.text}; Roots: ${roots.roots.length}`);
  },
  async test_input_required_result_multi_round(peer) {
    const { name } = (await peer.ask(...form('Step 1: What is your name?', 'name'))).content;
    const { color } = (await peer.ask(...form('Step 2: What is your favorite color?', 'color'))).content;
    return text(`Multi-round complete for ${name} who likes ${color}`);
  },
  async test_input_required_result_tampered_state(peer) { await peer.ask(...form('Please confirm', 'ok', 'boolean')); return text('integrity-ok'); },
  async test_input_required_result_capabilities(peer) {
    const { elicitation, sampling } = peer.capabilities;
    const answers = await Promise.all([...(elicitation ? [peer.ask(...form('Your name?', 'name'))] : []), ...(sampling ? [peer.ask(...sample('Hello?', 20))] : [])]);
    return text(`capabilities-ok: ${answers.length}`);
  },
  greet: (peer, { arguments: args }) => text(`Hello, ${args?.name}!`),
  async slow_compute(peer, { arguments: args }) { await sleep(1000 * (args?.seconds ?? 0)); return text(`computed ${args?.label}`); },
  async failing_job() { await sleep(300); return { ...text('the job failed'), isError: true }; },
  async protocol_error_job() { await sleep(100); throw { code: -32603, message: 'the job broke down' }; },
  async confirm_delete(peer, { arguments: args }) { return text(`${args?.filename}: ${(await peer.ask(...form('Delete it?', 'confirm', 'boolean'))).action}`); },
  async multi_input(peer) {
    const answers = await Promise.all([peer.ask(...form('First?', 'name')), peer.ask(...form('Second?', 'name'))]);
    return text(answers.map(({ content }) => content?.name).join(', '));
  },
  async test_tool_with_task(peer) {
    const { name } = (await peer.ask(...form('What is your name?', 'name'))).content;
    await sleep(500);
    return text(`Worked for ${name}`);
  },
  test_x_mcp_header: (peer, { arguments: args }) => text(`region ${args?.region}`),
  json_schema_2020_12_tool: () => text('validated'),
};
const schemas = {
  test_x_mcp_header: { type: 'object', properties: { region: { type: 'string', 'x-mcp-header': 'Region' } } },
  json_schema_2020_12_tool: {
    $schema: 'https://json-schema.org/draft/2020-12/schema', type: 'object',
    $defs: { address: { $anchor: 'addressDef', type: 'object', properties: { street: { type: 'string' }, city: { type: 'string' } } } },
    properties: { name: { type: 'string' }, address: { $ref: '#/$defs/address' }, contactMethod: { type: 'string', enum: ['phone', 'email'] }, phone: { type: 'string' }, email: { type: 'string' } },
    allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
    if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] }, then: { required: ['phone'] }, else: { required: ['email'] },
    additionalProperties: false,
  },
};
const prompts = {
  test_simple_prompt: () => ({ messages: [{ role: 'user', content: { type: 'text', text: 'This is a simple prompt for testing.' } }] }),
  test_prompt_with_arguments: (peer, { arguments: { arg1, arg2 } }) => ({ messages: [{ role: 'user', content: { type: 'text', text: `Prompt with arguments: arg1='${arg1}', arg2='${arg2}'` } }] }),
  test_prompt_with_embedded_resource: (peer, { arguments: { resourceUri } }) => ({ messages: [
    { role: 'user', content: { type: 'resource', resource: { uri: resourceUri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' } } },
    { role: 'user', content: { type: 'text', text: 'Please process the embedded resource above.' } }] }),
  test_prompt_with_image: () => ({ messages: [{ role: 'user', content: { type: 'image', data: png, mimeType: 'image/png' } }, { role: 'user', content: { type: 'text', text: 'Please analyze the image above.' } }] }),
  async test_input_required_result_prompt(peer) {
    const { context } = (await peer.ask(...form('What context should the prompt use?', 'context'))).content;
    return { messages: [{ role: 'user', content: { type: 'text', text: `Prompt with context: ${context}` } }] };
  },
};
const promptArguments = {
  test_prompt_with_arguments: [{ name: 'arg1', description: 'First', required: true }, { name: 'arg2', description: 'Second', required: true }],
  test_prompt_with_embedded_resource: [{ name: 'resourceUri', description: 'URI', required: true }],
};
const resources = {
  'test://static-text': { mimeType: 'text/plain', text: 'This is the content of the static text resource.' },
  'test://static-binary': { mimeType: 'image/png', blob: png },
};

const methods = {
  initialize: (peer, { protocolVersion, capabilities }) => {
    peer.capabilities = capabilities;
    return { protocolVersion, serverInfo: { name: 'legacy-fixture', version: '1.0.0' }, instructions: 'A legacy server for the official suite.',
      capabilities: { tools: { listChanged: true }, prompts: { listChanged: true }, resources: { subscribe: true, listChanged: true }, completions: {}, logging: {} } };
  },
  ping: () => ({}),
  'logging/setLevel': () => ({}),
  'resources/subscribe': () => ({}),
  'resources/unsubscribe': () => ({}),
  'tools/list': () => ({ tools: Object.keys(tools).map(name => ({ name, description: `The tool ${name}`, inputSchema: schemas[name] ?? { type: 'object', properties: {} } })) }),
  'tools/call': (peer, params) => {
    if (!tools[params.name]) throw { code: -32602, message: `Unknown tool: ${params.name}` };
    return tools[params.name](peer, params);
  },
  'prompts/list': () => ({ prompts: Object.keys(prompts).map(name => ({ name, description: `The prompt ${name}`, arguments: promptArguments[name] })) }),
  'prompts/get': (peer, params) => {
    if (!prompts[params.name]) throw { code: -32602, message: `Unknown prompt: ${params.name}` };
    return prompts[params.name](peer, params);
  },
  'resources/list': () => ({ resources: Object.entries(resources).map(([uri, { mimeType }]) => ({ uri, name: uri.slice(7), mimeType })) }),
  'resources/templates/list': () => ({ resourceTemplates: [{ uriTemplate: 'test://template/{id}/data', name: 'template', mimeType: 'application/json' }] }),
  'resources/read': (peer, { uri }) => {
    const id = /^test:\/\/template\/(.+)\/data$/.exec(uri)?.[1];
    if (id) return { contents: [{ uri, mimeType: 'application/json', text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) }] };
    if (!resources[uri]) throw { code: -32002, message: 'Resource not found', data: { uri } };
    return { contents: [{ uri, ...resources[uri] }] };
  },
  'completion/complete': () => ({ completion: { values: ['test1', 'test2'], total: 2, hasMore: false } }),
};

// One legacy session. `send(message, requestId)` writes; requestId says for whose sake, null for nobody's.
function makePeer(send) {
  let nextId = 0;
  const waiting = new Map();
  const session = { capabilities: {} };
  return async message => {
    if (process.env.RECORD) appendFileSync(process.env.RECORD, JSON.stringify({ message, asked: waiting.get(message.id)?.method }) + '\n');
    if (message.method === undefined) { waiting.get(message.id)?.answer(message); waiting.delete(message.id); return; }
    if (message.id === undefined) return;
    const peer = {
      get capabilities() { return session.capabilities; },
      set capabilities(value) { session.capabilities = value; },
      notify: (method, params, alone) => send({ jsonrpc: '2.0', method, params }, alone ? null : message.id),
      ask: (method, params) => new Promise((resolve, reject) => {
        const id = nextId++;
        waiting.set(id, { method, answer: answer => answer.error ? reject(answer.error) : resolve(answer.result) });
        send({ jsonrpc: '2.0', id, method, params }, message.id);
      }),
    };
    let body;
    try {
      if (!methods[message.method]) throw { code: -32601, message: 'Method not found' };
      body = { result: await methods[message.method](peer, message.params ?? {}) };
    } catch (error) {
      body = { error: { code: error.code ?? -32603, message: error.message ?? String(error), data: error.data } };
    }
    send({ jsonrpc: '2.0', id: message.id, ...body }, message.id);
  };
}

const event = message => `event: message\ndata: ${JSON.stringify(message)}\n\n`;

async function read(request) {
  let body = '';
  for await (const piece of request) body += piece;
  return body && JSON.parse(body);
}

function streamable(sessions = new Map()) {
  return async (request, response) => {
    let session = sessions.get(request.headers['mcp-session-id']);
    if (request.method === 'DELETE') { sessions.delete(request.headers['mcp-session-id']); response.writeHead(200).end(); return; }
    if (request.method === 'GET') {
      if (!session) { response.writeHead(400).end(); return; }
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.flushHeaders();
      session.get = response;
      return;
    }
    const message = await read(request);
    if (!session) {
      if (message.method !== 'initialize') { response.writeHead(404).end(); return; }
      session = { id: randomUUID(), streams: new Map() };
      session.receive = makePeer((out, id) => {
        const stream = id === null ? session.get : session.streams.get(id);
        stream?.write(event(out));
        if (out.id === id && out.method === undefined) { stream?.end(); session.streams.delete(id); }
      });
      sessions.set(session.id, session);
    }
    if (message.id === undefined || message.method === undefined) response.writeHead(202).end();
    else {
      response.writeHead(200, { 'content-type': 'text/event-stream', 'mcp-session-id': session.id });
      session.streams.set(message.id, response);
    }
    session.receive(message);
  };
}

function httpSse(sessions = new Map()) {
  return async (request, response) => {
    const url = new URL(request.url, 'http://localhost');
    if (request.method === 'GET') {
      const id = randomUUID();
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(`event: endpoint\ndata: /messages?session_id=${id}\n\n`);
      sessions.set(id, makePeer(out => response.write(event(out))));
      request.on('close', () => sessions.delete(id));
      return;
    }
    const receive = url.pathname === '/messages' && sessions.get(url.searchParams.get('session_id'));
    if (!receive) { response.writeHead(405).end(); return; }
    const message = await read(request);
    response.writeHead(202).end('Accepted');
    receive(message);
  };
}

const transport = process.argv[2];
if (transport === '--http' || transport === '--sse') {
  const server = createServer(transport === '--http' ? streamable() : httpSse());
  server.listen(0, '127.0.0.1', () => console.log(server.address().port));
} else {
  const receive = makePeer(message => process.stdout.write(JSON.stringify(message) + '\n'));
  createInterface({ input: process.stdin }).on('line', line => receive(JSON.parse(line)));
}
