// What the suite's client scenarios start: mcp-valet in front of the suite's legacy server, and a modern client that uses it
// as the scenario wants. The last argument is the server's URL.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const url = process.argv.at(-1), scenario = process.env.MCP_CONFORMANCE_SCENARIO;
const valet = spawn(process.env.MCP_VALET, ['--log-level', 'error', '--upstream', url], { stdio: ['pipe', 'pipe', 'inherit'] });
const waiting = new Map();
createInterface({ input: valet.stdout }).on('line', line => { const message = JSON.parse(line); waiting.get(message.id)?.(message); });
let nextId = 1;
const ask = (method, params = {}) => new Promise((resolve, reject) => {
  const id = nextId++;
  waiting.set(id, ({ result, error }) => error ? reject(new Error(`${method}: ${error.message}`)) : resolve(result));
  valet.stdin.write(JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta: {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientInfo': { name: 'driver', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } } } } }) + '\n');
});
// Answers every question with the defaults of its schema.
async function call(name, args) {
  let result = await ask('tools/call', { name, arguments: args });
  while (result.resultType === 'input_required') {
    const inputResponses = Object.fromEntries(Object.entries(result.inputRequests).map(([key, { params }]) => [key, { action: 'accept',
      content: Object.fromEntries(Object.entries(params.requestedSchema.properties).filter(([, schema]) => 'default' in schema).map(([field, schema]) => [field, schema.default])) }]));
    result = await ask('tools/call', { name, arguments: args, inputResponses, requestState: result.requestState });
  }
  return result;
}
const { tools } = await ask('tools/list');
if (scenario === 'tools_call') await call('add_numbers', { a: 5, b: 3 });
else if (scenario === 'elicitation-sep1034-client-defaults') await call('test_client_elicitation_defaults', {});
else if (scenario === 'sse-retry') await call('test_reconnection', {});
else if (scenario === 'json-schema-2020-12-preservation')
  await call('json_schema_echo', { schema: tools.find(tool => tool.name === 'json_schema_2020_12_tool').inputSchema });
valet.stdin.end();
await new Promise(resolve => valet.on('exit', resolve));
