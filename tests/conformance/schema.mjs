// The official JSON schemas of the revisions, as the suite carries them inside its bundle, and what they say of a message.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { runInNewContext } from 'node:vm';
import Ajv from 'ajv';
import Ajv2020 from 'ajv/dist/2020.js';
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

const schemas = [...bundle.matchAll(/\{\$schema:`https?:\/\/json-schema\.org\/draft[^`]*`,(?:\$defs|definitions):\{Annotations:/g)]
  .map(({ index }) => literal(index)).map(schema => ({ ...schema, $defs: schema.$defs ?? schema.definitions }));

const signs = { '2025-03-26': 'JSONRPCBatchRequest', '2025-06-18': 'ElicitRequest', '2025-11-25': 'GetTaskRequest', '2026-07-28': 'InputRequiredResult' };

// One revision's schema: the one that has its sign and the fewest definitions.
function official(revision) {
  const schema = schemas.filter(({ $defs }) => $defs[signs[revision]]).sort((a, b) => Object.keys(a.$defs).length - Object.keys(b.$defs).length)[0];
  assert.ok(schema, `the suite carries the schema of ${revision} in another way`);
  const ajv = new (schema.$schema.includes('2020-12') ? Ajv2020 : Ajv)({ strict: false });
  addFormats(ajv);
  ajv.addFormat('byte', true);
  ajv.addSchema({ ...schema, $id: 'all' });
  return {
    has: name => name in schema.$defs,
    names: new Map(Object.entries(schema.$defs).filter(([, { properties }]) => properties?.method?.const)
      .map(([name, { properties }]) => [properties.method.const, name])),
    check(name, value) {
      const valid = ajv.getSchema(`all#/${schema.definitions ? 'definitions' : '$defs'}/${name}`);
      return valid(value) ? [] : valid.errors.map(error => `${name}${error.instancePath} ${error.message}: ${JSON.stringify(value)}`);
    },
  };
}

const revisions = new Map(Object.keys(signs).map(revision => [revision, official(revision)]));

// What is wrong with a message; `asked` is the method that a response answers. The first revision is held against the second,
// because the suite does not carry it.
export function faults(message, asked, revision = '2025-11-25') {
  const { has, names, check } = revisions.get(revision === '2024-11-05' ? '2025-03-26' : revision);
  if (message.method !== undefined) return names.has(message.method) ? check(names.get(message.method), message) : [`unknown method ${message.method}`];
  if (message.error !== undefined) return check(has('JSONRPCErrorResponse') ? 'JSONRPCErrorResponse' : 'JSONRPCError', message);
  // A task is of an extension, whose results the schema of the revision does not name.
  const kinds = { input_required: 'InputRequiredResult', task: 'Result' };
  const kind = kinds[message.result.resultType] ?? names.get(asked)?.replace(/Request$/, 'Result');
  return [...check(has('JSONRPCResultResponse') ? 'JSONRPCResultResponse' : 'JSONRPCResponse', message), ...check(has(kind) ? kind : 'Result', message.result)];
}
