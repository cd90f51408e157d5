// Starts mcp-valet for a test, and speaks to it: with the official client, or with bare bytes.
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync, existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import http from 'node:http';
import net from 'node:net';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { judgeMessage, sent } from './judge.mjs';

export const here = dirname(fileURLToPath(import.meta.url));
export const program = process.env.MCP_VALET ?? join(here, '../../build/mcp-valet');
export const fixture = name => join(here, 'fixtures', name);
export const packaged = path => join(here, 'node_modules', path);
export const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

export function scratch(t) {
  const dir = mkdtempSync(join(tmpdir(), 'mcp-valet-'));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

export function policyFile(t, text) {
  const path = join(scratch(t), 'policy.yaml');
  writeFileSync(path, text);
  return path;
}

// Waits until `test` gives something.
export async function until(test, what, ms = 10000) {
  const end = Date.now() + ms;
  for (;;) {
    const value = await test();
    if (value) return value;
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await sleep(20);
  }
}

export function alive(pid) {
  try { process.kill(pid, 0); return !readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z '); } catch { return false; }
}

// How many descriptors it has open. Only root may look, since mcp-valet is not dumpable; to others it is none.
export const descriptors = pid => process.getuid() === 0 ? readdirSync(`/proc/${pid}/fd`).length : 0;

// Processes whose parent is `pid`.
export function children(pid) {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number);
  } catch { return []; }
}

// mcp-valet with the HTTP face.
export async function serve(t, command, { policy, args = [], env = {} } = {}) {
  const options = ['--listen', '127.0.0.1:0', '--log-format', 'json', '--log-level', 'debug', ...args];
  if (policy) options.push('--policy', policyFile(t, policy));
  const child = spawn(program, [...options, '--', ...command], { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  const valet = { child, pid: child.pid, log: '', exited: new Promise(resolve => child.on('exit', (code, signal) => resolve({ code, signal }))) };
  child.stderr.on('data', data => { valet.log += data; });
  t.after(async () => { child.kill('SIGKILL'); await valet.exited; });
  const address = await until(() => /Streamable HTTP on (127\.0\.0\.1:\d+)/.exec(valet.log)?.[1], `the address in the log:\n${valet.log}`);
  valet.port = Number(address.split(':')[1]);
  valet.url = `http://${address}/mcp`;
  return valet;
}

export const everything = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };

export function makeClient(capabilities, handlers = {}) {
  const client = new Client({ name: 'interop', version: '1' }, { capabilities, versionNegotiation: { mode: { pin: '2026-07-28' } } });
  for (const [method, handler] of Object.entries(handlers)) client.setRequestHandler(method, handler);
  return client;
}

// The official client over one of the two faces.
export async function connect(t, face, command, { capabilities = everything, handlers = {}, policy } = {}) {
  const client = makeClient(capabilities, handlers);
  if (face === 'http') {
    const valet = await serve(t, command, { policy });
    await client.connect(new StreamableHTTPClientTransport(new URL(valet.url)));
    client.valet = valet;
  } else {
    const args = policy ? ['--policy', policyFile(t, policy)] : [];
    await client.connect(new StdioClientTransport({ command: program, args: [...args, '--log-level', 'error', '--', ...command], stderr: 'inherit',
      env: process.env }));
  }
  t.after(() => client.close());
  return client;
}

export const meta = (capabilities = everything, more = {}) => ({
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': { name: 'raw', version: '1' },
  'io.modelcontextprotocol/clientCapabilities': capabilities,
  ...more,
});

// A port for a server that cannot choose one itself.
export async function freePort() {
  const server = http.createServer().listen(0, '127.0.0.1');
  await new Promise(resolve => server.on('listening', resolve));
  const { port } = server.address();
  await new Promise(resolve => server.close(resolve));
  return port;
}

// A bare HTTP POST. `body` is a string, sent as it is.
export function post(valet, body, headers = {}, { method = 'POST', signal } = {}) {
  sent(body);
  return new Promise((resolve, reject) => {
    const request = http.request({ host: '127.0.0.1', port: valet.port, path: '/mcp', method, signal, agent: false,
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers } }, response => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', data => { text += data; });
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, text }));
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(body);
  });
}

// Bare bytes on a connection of their own. Gives the statuses of the responses, all that came, and whether the server ended the
// connection; returns with the response number `count`, if that is given, else at the end of the connection.
export function exchange(valet, bytes, count, { step, address = '127.0.0.1', ms = 15000 } = {}) {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ port: valet.port, host: '127.0.0.1', localAddress: address, noDelay: true });
    let text = '';
    const result = ended => ({ text, ended, statuses: [...text.matchAll(/HTTP\/1\.1 (\d{3}) [A-Z]/g)].map(([, status]) => Number(status)) });
    const done = ended => { clearTimeout(timer); socket.destroy(); resolve(result(ended)); };
    const timer = setTimeout(done, ms, false);
    socket.on('data', data => { text += data.toString('latin1'); if (result().statuses.length === count) done(false); });
    socket.on('end', () => done(true));
    socket.on('error', error => { clearTimeout(timer); if (text) done(true); else reject(error); });
    socket.on('connect', async () => {
      const all = Buffer.from(bytes, 'latin1');
      if (!step) { socket.write(all); return; }
      for (let at = 0; at < all.length && socket.writable; at += step) await new Promise(next => socket.write(all.subarray(at, at + step), next));
    });
  });
}

let nextId = 1;
// A modern request over HTTP. Gives the status, the whole text and the message in it.
export async function ask(valet, method, params = {}, { capabilities = everything, headers = {}, id = nextId++, signal } = {}) {
  const message = { jsonrpc: '2.0', id, method, params: { ...params, _meta: meta(capabilities, params._meta) } };
  const name = params.name ?? params.uri;
  const response = await post(valet, JSON.stringify(message), { 'mcp-protocol-version': '2026-07-28', 'mcp-method': method,
    ...(name === undefined ? {} : { 'mcp-name': name }), ...headers }, { signal });
  const messages = response.headers['content-type']?.startsWith('text/event-stream')
    ? response.text.split('\n').filter(line => line.startsWith('data: ')).map(line => JSON.parse(line.slice(6)))
    : response.text ? [JSON.parse(response.text)] : [];
  for (const message of messages) judgeMessage(message, method);
  const json = messages.at(-1);
  return { ...response, json, result: json?.result, error: json?.error };
}

export const call = (valet, name, args = {}, more = {}, options = {}) =>
  ask(valet, 'tools/call', { name, arguments: args, ...more }, options);

// Answers every question of a round in the same way.
export const answerAll = (result, answer) => Object.fromEntries(Object.entries(result.inputRequests).map(([key, request]) =>
  [key, typeof answer === 'function' ? answer(request, key) : answer]));

export const retry = (valet, name, args, result, inputResponses, options) =>
  call(valet, name, args, { inputResponses, requestState: result.requestState }, options);

export const textOf = result => result.content.map(part => part.text).join('\n');

export function recorded(path) {
  return existsSync(path) ? readFileSync(path, 'utf8').split('\n').filter(Boolean).map(line => JSON.parse(line)) : [];
}
