// The sweep: installs each server of servers.json, takes it through the official client behind mcp-valet and directly, and
// writes RESULTS.md. It needs the network and the packages of ../interop (`npm ci` there). Nothing of the environment reaches a
// server but PATH; as root, servers run as `nobody`. Each has a temporary folder with a HOME, which is removed afterwards.
//
//   MCP_VALET=build/mcp-valet node tests/wild/run.mjs WORK-DIRECTORY [--only NAME] [--list FILE] [--json FILE] [--jobs N]
//
// --only and --list write no RESULTS.md; --json keeps every record, and reads it to go on where a sweep was cut off. At most two
// servers run at a time. The exit code is 1 when a server did worse behind mcp-valet than directly.
//
// An entry of servers.json: name, version; args ("{work}" is the temporary folder); bin, where the package has several commands,
// or file, the program's path in a package that has none; files, what lies in its HOME at the start, by name; sdk, where it cannot be
// seen in node_modules;
// note, what a difference comes from; asks, calls that ask: tool, arguments, and how long the server needs before the first (settle, ms).
import { spawn } from 'node:child_process';
import { chownSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { round, walk } from './session.mjs';
import { report } from './report.mjs';

const here = import.meta.dirname;
const { values: options, positionals: [work] } = parseArgs({ allowPositionals: true,
  options: { only: { type: 'string' }, list: { type: 'string' }, json: { type: 'string' }, jobs: { type: 'string', default: '1' } } });
if (!work) throw new Error('usage: run.mjs WORK-DIRECTORY');
const program = resolve(process.env.MCP_VALET ?? join(here, '../../build/mcp-valet'));
const nobody = 65534;
const asRoot = process.getuid() === 0;
const unprivileged = asRoot ? ['setpriv', `--reuid=${nobody}`, `--regid=${nobody}`, '--clear-groups', '--no-new-privs'] : [];
const installSeconds = 180;
const serverSeconds = 150;

// Runs to its end or to its time limit; true when it ended well.
function run(command, { seconds, ...more }) {
  return new Promise(done => {
    const child = spawn(command[0], command.slice(1), { stdio: 'ignore', detached: true, ...more });
    const clock = setTimeout(() => process.kill(-child.pid, 'SIGKILL'), seconds * 1000);
    child.on('error', () => done(false));
    child.on('exit', code => { clearTimeout(clock); done(code === 0); });
  });
}

// There are servers that leave a daemon behind: whoever still has this HOME is ended.
function endAll(home) {
  for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    try {
      if (readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(`HOME=${home}`)) process.kill(Number(pid), 'SIGKILL');
    } catch { /* gone already, or another user's */ }
  }
}

const packageOf = path => JSON.parse(readFileSync(join(path, 'package.json'), 'utf8'));

function startOf(dir, server) {
  const at = join(dir, 'node_modules', server.name);
  const { bin, name } = packageOf(at);
  const bins = typeof bin === 'string' ? { [name]: bin } : bin ?? {};
  const file = server.file ?? bins[server.bin] ?? bins[name.split('/').pop()] ?? Object.values(bins).find(one => /mcp|server/.test(one)) ?? Object.values(bins)[0];
  if (!file) throw new Error('no command in the package');
  const path = join(at, file);
  const script = /\.[cm]?js$/.test(path) || readFileSync(path).subarray(0, 80).toString('latin1').includes('node');
  return [...unprivileged, ...(script ? [process.execPath] : []), path, ...(server.args ?? []).map(arg => arg.replace('{work}', dir))];
}

const sdks = ['@modelcontextprotocol/server', 'fastmcp', 'mcp-framework', 'litemcp', 'tmcp', 'xmcp', 'mcp-lite', '@modelcontextprotocol/sdk'];
function sdkOf(dir, server) {
  for (const sdk of sdks) {
    const path = [join(dir, 'node_modules', server.name, 'node_modules', sdk), join(dir, 'node_modules', sdk)].find(existsSync);
    if (path) return `${sdk.replace('@modelcontextprotocol/', '')} ${packageOf(path).version}`;
  }
  return 'bundled or none';
}

async function sweep(server) {
  const dir = mkdtempSync(join(work, 'server-'));
  const home = join(dir, 'home');
  mkdirSync(home);
  for (const [name, text] of Object.entries(server.files ?? {})) writeFileSync(join(home, name), text);
  if (asRoot) for (const path of [dir, home]) chownSync(path, nobody, nobody);
  const env = { PATH: process.env.PATH, HOME: home, LANG: 'C.UTF-8', NODE_ENV: 'production',
    ...(process.env.NODE_EXTRA_CA_CERTS && { NODE_EXTRA_CA_CERTS: process.env.NODE_EXTRA_CA_CERTS }) };
  const record = { ...server };
  try {
    const installed = await run(['npm', 'install', '--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline', '--prefix', dir, `${server.name}@${server.version}`],
      { seconds: installSeconds, cwd: dir });
    if (!installed) return { ...record, skipped: 'not installable' };
    record.sdk = server.sdk ?? sdkOf(dir, server);
    const command = startOf(dir, server);
    const behind = [program, '--log-format', 'json', '--log-level', 'info', '--', ...command];
    record.direct = await walk(command, { modern: false, cwd: home, env });
    if (record.direct.steps.connect !== 'ok') return { ...record, skipped: `does not start: ${record.direct.steps.connect}` };
    let log = '';
    record.valet = await walk(behind, { modern: true, cwd: home, env, onLog: data => { log = (log + data).slice(-20000); } });
    record.revision = /protocol revision ([\d-]+)/.exec(log)?.[1] ?? record.direct.revision;
    for (const ask of server.asks ?? []) {
      for (const kind of ['accept', 'decline', 'abandon']) {
        const behindIt = await round(behind, ask, kind, { modern: true, cwd: home, env });
        const directly = kind === 'abandon' ? undefined : await round(command, ask, kind, { modern: false, cwd: home, env });
        (record.rounds ??= []).push({ tool: ask.tool, kind, valet: behindIt, direct: directly });
      }
    }
    return JSON.parse(JSON.stringify(record).replaceAll(dir, '{work}'));
  } catch (error) {
    return { ...record, skipped: error.message };
  } finally {
    endAll(home);
    await rm(dir, { recursive: true, force: true, maxRetries: 3 });
  }
}

mkdirSync(work, { recursive: true });
const all = JSON.parse(readFileSync(options.list ?? join(here, 'servers.json'), 'utf8'));
const records = options.json && existsSync(options.json) ? JSON.parse(readFileSync(options.json, 'utf8')) : [];
const keyOf = ({ name, version, args }) => JSON.stringify([name, version, args]);
const done = new Set(records.map(keyOf));
const queue = all.filter(server => !done.has(keyOf(server)) && (!options.only || server.name === options.only));
const limit = ({ asks = [] }) => new Promise(resolve => setTimeout(() => resolve(null), (installSeconds + serverSeconds * (1 + asks.length)) * 1000).unref());

await Promise.all(Array.from({ length: Math.min(Number(options.jobs), 2) }, async () => {
  for (let server; (server = queue.shift());) {
    const record = await Promise.race([sweep(server), limit(server)]) ?? { ...server, skipped: 'took too long' };
    records.push(record);
    console.log(server.name, record.skipped ?? Object.values(record.valet.steps).filter(text => text.startsWith('failed')).join('; ') ?? 'ok');
    if (options.json) writeFileSync(options.json, JSON.stringify(records));
  }
}));

const { text, ours } = report(records, all.length);
if (options.only || options.list) console.log(text);
else writeFileSync(join(here, 'RESULTS.md'), text);
process.exit(ours ? 1 : 0);
