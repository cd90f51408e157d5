// Holds what mcp-valet says in these tests against the official schemas: what clients get, and what legacy servers get, of the
// revision that they agreed on. A test file that finds a fault fails at its end.
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { Client } from '@modelcontextprotocol/client';
import { Client as LegacyClient } from '@modelcontextprotocol/sdk/client/index.js';
import { faults } from '../conformance/schema.mjs';

const dir = mkdtempSync(join(tmpdir(), 'mcp-valet-wire-'));

// For the servers that a test starts, see wire.mjs.
const file = join(dir, 'wire');
Object.assign(process.env, { WIRE: file, NODE_OPTIONS: `--import=${new URL('wire.mjs', import.meta.url)}` });

const got = [];
const inputs = new Set();

// A client got `message`, which, if it is a response, answers `method`.
export function judgeMessage(message, method, revision = '2026-07-28') {
  got.push({ message, method, revision });
}

// A client sent `body`. What it gives as `inputResponses` passes as it is, whatever it is.
export function sent(body) {
  if (!body?.includes('"inputResponses"')) return;
  for (const value of Object.values(JSON.parse(body).params.inputResponses ?? {})) inputs.add(JSON.stringify(value));
}

// What official clients get, whatever transport they use.
for (const [kind, revision] of [[Client, '2026-07-28'], [LegacyClient, '2025-11-25']]) {
  const connect = kind.prototype.connect;
  kind.prototype.connect = function (transport, ...more) {
    const asked = new Map(), send = transport.send;
    transport.send = function (message, ...rest) {
      if (message.method !== undefined && message.id !== undefined) asked.set(message.id, message.method);
      return send.call(this, message, ...rest);
    };
    let receive;
    Object.defineProperty(transport, 'onmessage', {
      get: () => receive,
      set: handler => {
        receive = handler && ((message, ...rest) => {
          judgeMessage(message, asked.get(message.id), revision);
          return handler(message, ...rest);
        });
      },
    });
    return connect.call(this, transport, ...more);
  };
}

// What one server said and got.
function judgeServer(wire) {
  const messages = wire.map(({ direction, text }) => ({ direction, message: JSON.parse(text) }))
    .filter(({ message }) => message.jsonrpc === '2.0');
  const said = messages.filter(({ direction }) => direction === 'out').map(({ message }) => message);
  const heard = messages.filter(({ direction }) => direction === 'in').map(({ message }) => message);
  const revisions = [...new Set(said.map(({ result }) => result?.protocolVersion).filter(Boolean))];
  if (!revisions.length) return { said, found: [] }; // modern, or it never got that far
  const found = heard.filter(({ params, result }) => !params?._meta?.['io.modelcontextprotocol/protocolVersion'] && !inputs.has(JSON.stringify(result)))
    .flatMap(message => {
      // Sessions count their ids each for itself, so one id may stand for several questions.
      const asked = message.method === undefined ? said.filter(({ id, method }) => method && id === message.id).map(({ method }) => method) : [];
      const verdicts = revisions.flatMap(revision => (asked.length ? [...new Set(asked)] : [undefined]).map(method => faults(message, method, revision)));
      return verdicts.find(list => !list.length) ?? verdicts[0];
    });
  return { said, found: found.map(fault => `a legacy server got ${fault}`) };
}

after(() => {
  const wire = existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean).map(line => JSON.parse(line)) : [];
  rmSync(dir, { recursive: true, force: true });
  const servers = [...new Set(wire.map(({ pid }) => pid))].map(server => judgeServer(wire.filter(({ pid }) => pid === server)));
  // What a server says to a legacy client passes as it is, too.
  const passed = new Set(servers.flatMap(({ said }) => said).map(({ params, result }) => JSON.stringify(params ?? result)));
  const found = got.filter(({ message, revision }) => revision === '2026-07-28' || !passed.has(JSON.stringify(message.params ?? message.result)))
    .flatMap(({ message, method, revision }) => faults(message, method, revision)).map(fault => `a client got ${fault}`);
  assert.deepEqual([...servers.flatMap(server => server.found), ...found], []);
});
