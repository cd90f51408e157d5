// One walk through a server, by the official client: behind mcp-valet (2026-07-28), or straight to it (legacy). Both are the same
// steps, so that what fails in both is the server's own.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { join } from 'node:path';

const here = import.meta.dirname;
const load = createRequire(join(here, '../interop/package.json'));
const { Client } = await import(pathToFileURL(load.resolve('@modelcontextprotocol/client')));
const { StdioClientTransport } = await import(pathToFileURL(load.resolve('@modelcontextprotocol/client/stdio')));

const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
const listings = { tools: 'tools/list', prompts: 'prompts/list', resources: 'resources/list', resourceTemplates: 'resources/templates/list' };
const refusal = 'the user refused';
const timeout = 20000;
const pageLimit = 50;

const told = error => `${error.code ?? error.name}: ${error.message}`.replace(/\s+/g, ' ').slice(0, 160);

// The shortest value that the schema seems to allow.
export function sample(schema = {}) {
  if ('const' in schema) return schema.const;
  if ('default' in schema) return schema.default;
  if (schema.enum?.length) return schema.enum[0];
  const choice = schema.anyOf ?? schema.oneOf;
  if (choice) return sample(choice.find(one => one.type !== 'null') ?? choice[0]);
  if (schema.examples?.length) return schema.examples[0];
  switch ([schema.type].flat()[0]) {
    case 'integer': case 'number': return Math.max(schema.minimum ?? 1, 1);
    case 'boolean': return false;
    case 'array': return Array.from({ length: schema.minItems ?? 0 }, () => sample(schema.items));
    case 'string':
      if (schema.format === 'email') return 'someone@example.com';
      if (schema.format === 'uri' || schema.format === 'url') return 'https://example.com/';
      if (schema.format === 'date') return '2026-01-01';
      if (schema.format === 'date-time') return '2026-01-01T00:00:00Z';
      return 'example'.padEnd(schema.minLength ?? 0, 'e').slice(0, schema.maxLength ?? undefined);
    default:
      return Object.fromEntries((schema.required ?? []).map(name => [name, sample(schema.properties?.[name])]));
  }
}

// A tool whose author calls it read-only, or, without annotations, one whose name says so and nothing in it says otherwise.
const reads = /^(\w+[_-])?(get|list|search|echo|find|read|describe|show|count|lookup|add|calculate|calc|convert|current|version|info|status|help|hello|ping)([_-]|[A-Z]|$)/;
const acts = /write|creat|delet|remov|updat|send|post|set[_A-Z-]|exec|run|install|launch|open|start|stop|kill|click|navigat|upload|download|save|insert|edit|move|rename|push|commit|buy|pay|order|transfer|add[_A-Z-]|clear|reset|login|auth|screenshot|wait|record/i;
export function harmless(tools) {
  const safe = tools.filter(({ name, annotations: hints = {} }) =>
    hints.readOnlyHint === true || (hints.readOnlyHint === undefined && hints.destructiveHint !== true && reads.test(name))).filter(tool => !acts.test(tool.name));
  return safe.sort((a, b) => (a.inputSchema.required?.length ?? 0) - (b.inputSchema.required?.length ?? 0))[0];
}

// What a person, a model and a workspace would say.
function answers(kind, root, asked) {
  const said = (what, value) => request => { asked.push(what); return typeof value === 'function' ? value(request.params) : value; };
  return {
    'elicitation/create': said('elicitation', params => kind === 'accept'
      ? { action: 'accept', ...(params.mode === 'url' ? {} : { content: sample(params.requestedSchema) }) } : { action: 'decline' }),
    'sampling/createMessage': said('sampling', () => {
      if (kind !== 'accept') throw new Error(refusal);
      return { role: 'assistant', content: { type: 'text', text: 'An answer.' }, model: 'none', stopReason: 'endTurn' };
    }),
    'roots/list': said('roots', { roots: [{ uri: pathToFileURL(root).href, name: 'work' }] }),
  };
}

async function open(command, { modern, kind = 'accept', cwd, env, asked, onLog = () => {} }) {
  const client = new Client({ name: 'wild', version: '1' }, { capabilities,
    versionNegotiation: { mode: modern ? { pin: '2026-07-28' } : 'legacy' } });
  for (const [method, handler] of Object.entries(answers(kind, cwd, asked))) client.setRequestHandler(method, handler);
  const transport = new StdioClientTransport({ command: command[0], args: command.slice(1), cwd, env, stderr: 'pipe' });
  transport.stderr.on('data', onLog);
  try {
    await client.connect(transport, { timeout });
  } catch (error) {
    await client.close().catch(() => {});
    throw error;
  }
  return client;
}

async function listAll(client, method, key) {
  const all = [];
  let cursor;
  for (let page = 0; page < pageLimit; page++) {
    const result = await client.request({ method, params: cursor === undefined ? {} : { cursor } }, { timeout });
    all.push(...result[key]);
    cursor = result.nextCursor;
    if (cursor === undefined) return all;
  }
  throw new Error(`more than ${pageLimit} pages`);
}

async function subscribe(client, declared) {
  const filter = Object.fromEntries(['tools', 'prompts', 'resources'].filter(what => declared[what]?.listChanged).map(what => [`${what}ListChanged`, true]));
  if (!Object.keys(filter).length) return '–';
  const listening = await client.listen(filter);
  await listening.close();
  const missing = Object.keys(filter).filter(what => listening.honoredFilter?.[what] !== true);
  return missing.length ? `not honoured: ${missing}` : 'ok';
}

// Everything that was tried, each step with `ok` or with what it failed with.
export async function walk(command, options) {
  const asked = [];
  const record = { steps: {}, counts: {}, names: {}, asked };
  const step = async (name, work) => {
    try { record.steps[name] = await work() ?? 'ok'; } catch (error) { record.steps[name] = `failed: ${told(error)}`; }
  };
  let client;
  await step('connect', async () => { client = await open(command, { ...options, asked }); });
  if (!client) return record;
  record.revision = client.getNegotiatedProtocolVersion();
  record.declared = client.getServerCapabilities() ?? {};
  const found = {};
  for (const [key, method] of Object.entries(listings)) {
    if (!record.declared[method.split('/')[0]]) continue;
    await step(method, async () => {
      found[key] = await listAll(client, method, key);
      record.counts[key] = found[key].length;
      record.names[key] = JSON.stringify(found[key].map(one => one.name ?? one.uri ?? one.uriTemplate));
    });
  }
  const tool = harmless(found.tools ?? []);
  if (tool) {
    await step(`tools/call ${tool.name}`, async () => {
      const result = await client.callTool({ name: tool.name, arguments: sample(tool.inputSchema) }, { timeout });
      return result.isError ? 'ok (isError)' : 'ok';
    });
  }
  /* There are prompts that act: one of them runs a command. */
  const prompt = found.prompts?.find(({ name }) => !acts.test(name));
  if (prompt) {
    await step(`prompts/get ${prompt.name}`, async () => {
      const wanted = (prompt.arguments ?? []).filter(one => one.required).map(one => [one.name, 'example']);
      await client.getPrompt({ name: prompt.name, arguments: Object.fromEntries(wanted) }, { timeout });
    });
  }
  const resource = found.resources?.[0];
  if (resource) await step(`resources/read ${resource.uri}`, async () => { await client.readResource({ uri: resource.uri }, { timeout }); });
  if (options.modern) await step('subscriptions/listen', () => subscribe(client, record.declared));
  await client.close().catch(() => {});
  return record;
}

const outcome = result => `${result.isError ? 'isError ' : ''}${result.content?.find(part => part.type === 'text')?.text ?? ''}`.replace(/\s+/g, ' ').slice(0, 60);

// A call that asks: `kind` is accept, decline or abandon. Who abandons is left with the question, and the server must still serve.
export async function round(command, ask, kind, options) {
  const asked = [];
  let client;
  try {
    client = await open(command, { ...options, kind, asked });
    if (ask.settle) await new Promise(resolve => setTimeout(resolve, ask.settle));
    const params = { name: ask.tool, arguments: ask.arguments };
    if (kind !== 'abandon') {
      const result = await client.callTool(params, { timeout });
      return { asked, text: outcome(result) };
    }
    const result = await client.request({ method: 'tools/call', params }, { allowInputRequired: true, timeout });
    const questions = Object.values(result.inputRequests ?? {}).map(request => request.method.split('/')[0]);
    await listAll(client, 'tools/list', 'tools');
    return { asked: questions, text: questions.length ? 'left parked; still served' : outcome(result) };
  } catch (error) {
    /* A refused sampling has no answer in 2026-07-28: the client gives the call up by itself. */
    if (options.modern && error.message === refusal) return { asked, gaveUp: true, text: 'the client gave the call up' };
    return { asked, failed: told(error) };
  } finally {
    await client?.close().catch(() => {});
  }
}
