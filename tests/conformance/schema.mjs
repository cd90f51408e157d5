// The official JSON schema of 2025-11-25, as the suite carries it inside its bundle, and what it says of a message.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { runInNewContext } from 'node:vm';
import Ajv from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';

const bundle = readFileSync(new URL('node_modules/@modelcontextprotocol/conformance/dist/index.js', import.meta.url), 'utf8');

// The object literal that begins at `start`.
function literal(start) {
  let depth = 0, quote = '';
  for (let i = start; i < bundle.length; i++) {
    const c = bundle[i];
    if (c === '\\') i++;
    else if (quote) quote = c === quote ? '' : quote;
    else if ('`"\''.includes(c)) quote = c;
    else if (c === '{') depth++;
    else if (c === '}' && --depth === 0) return runInNewContext(`(${bundle.slice(start, i + 1)})`);
  }
  throw new Error('the literal has no end');
}

// Two revisions use JSON Schema 2020-12: 2025-11-25, the only one that has tasks, and 2026-07-28.
const schema = [...bundle.matchAll(/\{\$schema:`https:\/\/json-schema\.org\/draft\/2020-12\/schema`,\$defs:\{Annotations:/g)]
  .map(({ index }) => literal(index)).find(({ $defs }) => $defs.GetTaskRequest);
assert.ok(schema, 'the suite carries its schemas in another way');

const ajv = new Ajv({ strict: false });
addFormats(ajv);
ajv.addFormat('byte', true);
ajv.addSchema({ ...schema, $id: 'legacy' });
const names = new Map(Object.entries(schema.$defs).filter(([, { properties }]) => properties?.method?.const)
  .map(([name, { properties }]) => [properties.method.const, name]));

function check(name, value) {
  const valid = ajv.getSchema(`legacy#/$defs/${name}`);
  return valid(value) ? [] : valid.errors.map(error => `${name}${error.instancePath} ${error.message}: ${JSON.stringify(value)}`);
}

// What is wrong with a message; `asked` is the method that a response answers.
export function faults(message, asked) {
  if (message.method !== undefined) return names.has(message.method) ? check(names.get(message.method), message) : [`unknown method ${message.method}`];
  if (message.error !== undefined) return check('JSONRPCErrorResponse', message);
  return [...check('JSONRPCResultResponse', message), ...check(names.get(asked)?.replace(/Request$/, 'Result') ?? 'Result', message.result)];
}
