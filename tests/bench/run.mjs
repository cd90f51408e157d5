#!/usr/bin/env node
// The benchmark: all contenders in one run, each pinned to core 0 with load and server on core 1, several rounds in turn,
// medians. Writes results.json, RESULTS.md and results.svg beside itself (or into BENCH_OUT).
//
//   run.mjs [--rounds N] [--seconds S] [--only SCENARIO,...] [--bridge 'NAME=COMMAND']
//
// A further bridge is a command that serves http://127.0.0.1:{port}/mcp in front of the child {stub}.
// Environment: MCP_VALET, BENCH_PROGRAMS (where load, relay and stub were built).
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer, connect } from 'node:net';
import { cpus, loadavg, release, tmpdir, totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { report } from './report.mjs';

const { values: options } = parseArgs({ options: {
  rounds: { type: 'string', default: '5' }, seconds: { type: 'string', default: '3' },
  only: { type: 'string', default: 'plain,rounds,sizes,parked,start' }, bridge: { type: 'string', multiple: true, default: [] },
} });
const here = dirname(fileURLToPath(import.meta.url));
const valet = process.env.MCP_VALET, programs = process.env.BENCH_PROGRAMS;
const scratch = mkdtempSync(join(tmpdir(), 'bench-'));
const stub = join(programs, 'stub'), load = join(programs, 'load');
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
const on = (core, ...command) => ['taskset', '-c', String(core), ...command];
const stubCommand = on(1, stub, 'stdio');
const median = list => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

const limits = `limits: { message: 64MiB, downstream_queue: 256MiB, upstream_queue: 256MiB, exchanges: 100000, waiting: 100000, parked: 100000,
  parked_per_principal: 100000, server_requests: 100000, connections: 20000, connections_per_address: 20000 }`;
const policy = (name, text) => {
  const path = join(scratch, `${name}.yaml`);
  writeFileSync(path, `version: 1\n${limits}\n${text}\n`);
  return path;
};
const policies = {
  standard: policy('standard', ''),
  quick: policy('quick', 'deadlines: { gather: 1ms }'),
  beside: policy('beside', 'rules:\n  - match: { tool: "echo" }\n    asks: never'),
  parking: policy('parking', 'deadlines: { gather: 1ms }\ndefaults: { park: 1h, call: 1h }'),
};

const running = new Set();
function launch(command, stdio = ['ignore', 'ignore', 'ignore']) {
  const child = spawn(command[0], command.slice(1), { stdio, detached: true });
  running.add(child);
  child.gone = new Promise(resolve => child.on('exit', () => { running.delete(child); resolve(); }));
  return child;
}
async function stop(child) {
  try { process.kill(-child.pid, 'SIGTERM'); } catch { return; }
  await Promise.race([child.gone, sleep(3000)]);
  try { process.kill(-child.pid, 'SIGKILL'); } catch { /* it is gone */ }
}
process.on('exit', () => {
  for (const child of running) try { process.kill(-child.pid, 'SIGKILL'); } catch { /* it is gone */ }
  rmSync(scratch, { recursive: true, force: true });
});

const freePort = () => new Promise(resolve => {
  const server = createServer().listen(0, '127.0.0.1', () => { const { port } = server.address(); server.close(() => resolve(port)); });
});
async function listening(port, what) {
  for (let i = 0; i < 2000; i++) {
    const open = await new Promise(resolve => {
      const socket = connect(port, '127.0.0.1', () => { socket.destroy(); resolve(true); }).on('error', () => resolve(false));
    });
    if (open) return;
    await sleep(5);
  }
  throw new Error(`${what} does not listen`);
}

const status = (pid, name) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);
// The contender's own processor time; without its children.
function cpu(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}
const resetPeak = pid => { try { writeFileSync(`/proc/${pid}/clear_refs`, '5'); } catch { /* the peak is since the start */ } };

async function runLoad(args) {
  const child = launch(on(1, load, ...args), ['ignore', 'pipe', 'pipe']);
  let out = '', fault = '';
  child.stdout.on('data', data => { out += data; });
  child.stderr.on('data', data => { fault += data; });
  await child.gone;
  await sleep(20);
  if (!out) throw new Error(`load ${args.join(' ')}: ${fault.slice(0, 600)}`);
  return JSON.parse(out);
}

// ---- contenders: each gives { pid, port, stop } --------------------------------------------------------------------------

async function served(command, port, others = []) {
  const child = launch(command);
  await listening(port, command.join(' '));
  return { pid: child.pid, port, stop: async () => { await stop(child); for (const other of others) await stop(other); } };
}
async function upstream() {
  const port = await freePort();
  const child = launch(on(1, stub, 'http', String(port)));
  await listening(port, 'the stub');
  return { port, child, pid: child.pid };
}
const peer = (...path) => join(here, 'peers', 'node_modules', ...path);

// As many parked calls as the machine lets one process have connections: over a Unix socket, whose names do not run out.
const descriptors = Number(/Max open files\s+\S+\s+(\d+)/.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1] ?? 1024);
const crowd = Math.min(100000, descriptors - 500);
const crowded = async policyPath => {
  const roomy = (...command) => ['prlimit', `--nofile=${descriptors}`, ...command];
  const socket = join(scratch, 'stub.socket'), port = await freePort();
  const behind = launch(roomy(...on(1, stub, 'http', socket)));
  while (!existsSync(socket)) await sleep(5);
  return served(roomy(...on(0, valet, '--listen', `127.0.0.1:${port}`, '--policy', policyPath, '--log-level', 'warning',
    '--upstream', `unix:${socket}:/mcp`)), port, [behind]);
};
const valetOn = async (policyPath, http) => {
  const port = await freePort(), behind = http ? await upstream() : null;
  const command = on(0, valet, '--listen', `127.0.0.1:${port}`, '--policy', policyPath, '--log-level', 'warning',
    ...(http ? ['--upstream', `http://127.0.0.1:${behind.port}/mcp`] : ['--', ...stubCommand]));
  return served(command, port, behind ? [behind.child] : []);
};
async function nginx() {
  const behind = await upstream(), port = await freePort(), path = join(scratch, 'nginx.conf');
  writeFileSync(path, `daemon off; master_process off; worker_processes 1; pid ${scratch}/nginx.pid; error_log /dev/null;
events { worker_connections 4096; }
http { access_log off; keepalive_requests 100000000; client_body_temp_path ${scratch}; proxy_temp_path ${scratch}; fastcgi_temp_path ${scratch};
  uwsgi_temp_path ${scratch}; scgi_temp_path ${scratch}; client_max_body_size 64m;
  upstream stub { server 127.0.0.1:${behind.port}; keepalive 512; keepalive_requests 100000000; }
  server { listen 127.0.0.1:${port}; tcp_nodelay on;
    location / { proxy_pass http://stub; proxy_http_version 1.1; proxy_set_header Connection ""; } } }`);
  return served(on(0, 'nginx', '-c', path, '-p', scratch), port, [behind.child]);
}
async function relay() {
  const child = launch(on(0, join(programs, 'relay'), ...stubCommand), ['ignore', 'pipe', 'ignore']);
  const port = await new Promise(resolve => child.stdout.once('data', data => resolve(Number(String(data)))));
  return { pid: child.pid, port, stop: () => stop(child) };
}
const command = parts => async () => {
  const port = await freePort();
  return served(on(0, ...parts.map(part => part.replaceAll('{port}', port).replaceAll('{stub}', stubCommand.join(' ')))), port);
};
const direct = async () => { const behind = await upstream(); return { pid: behind.pid, port: behind.port, stop: () => stop(behind.child) }; };
const native = command(['node', join(here, 'peers', 'native.mjs'), '{port}']);
const mcpProxy = command(['node', peer('mcp-proxy/dist/bin/mcp-proxy.mjs'), '--host', '127.0.0.1', '--server', 'stream', '--port', '{port}', '--', ...stubCommand]);
const supergateway = command(['node', peer('supergateway/dist/index.js'), '--logLevel', 'none', '--outputTransport', 'streamableHttp', '--port', '{port}', '--stdio', '{stub}']);
const bridges = options.bridge.map(text => [text.split('=')[0], command(['sh', '-c', `exec ${text.slice(text.indexOf('=') + 1)}`])]);

// ---- scenarios -----------------------------------------------------------------------------------------------------------

const results = [], before = loadavg()[0];
function note(scenario, contender, clients, what, figures) {
  const row = { scenario, contender, clients, what, ...figures };
  results.push(row);
  console.error(`${scenario} ${what} ${contender} c=${clients}: ${JSON.stringify(figures)}`);
}
const medians = runs => Object.fromEntries(Object.keys(runs[0]).map(key => [key, median(runs.map(run => run[key]))]));

// Every contender has its turn in each round, so that what else the machine does falls on all.
async function compete(scenario, what, contenders, clients, args) {
  const runs = new Map(contenders.map(([name]) => [name, []]));
  for (let round = 0; round < Number(options.rounds); round++)
    for (const [name, begin, more = []] of contenders) {
      const contender = await begin();
      try {
        await runLoad(['-n', '1', ...args, ...more, 'http', String(contender.port), '/mcp']);
        resetPeak(contender.pid);
        const before = cpu(contender.pid);
        const run = await runLoad(['-c', String(clients), '-t', options.seconds, ...args, ...more, 'http', String(contender.port), '/mcp']);
        if (!run.calls) throw new Error('no call began and ended in time');
        run.cpu_us = (cpu(contender.pid) - before) * 1e6 / run.all_calls;
        run.peak_kb = status(contender.pid, 'VmHWM');
        runs.get(name).push(run);
      } catch (error) {
        console.error(`${scenario} ${what} ${name}: ${error.message}`);
      }
      await contender.stop();
    }
  for (const [name, list] of runs)
    if (list.length) note(scenario, name, clients, what, medians(list));
}

async function stdioRuns(name, begin, clients) {
  const list = [];
  for (let round = 0; round < Number(options.rounds); round++)
    list.push(await runLoad(['-c', String(clients), '-t', options.seconds, 'stdio', ...begin]));
  note('plain', name, clients, 'stdio → stdio', medians(list));
}

async function plain() {
  for (const clients of [1, 32]) {
    await compete('plain', 'HTTP → HTTP', [['direct', direct], ['nginx', nginx], ['mcp-valet', () => valetOn(policies.standard, true)]], clients, []);
    await compete('plain', 'HTTP → stdio', [['relay', relay], ['mcp-valet', () => valetOn(policies.standard)],
      ['mcp-valet, asks: never', () => valetOn(policies.beside)], ['mcp-proxy', mcpProxy], ['supergateway', supergateway], ...bridges], clients, []);
    await stdioRuns('direct', on(0, stub, 'stdio'), clients);
    await stdioRuns('mcp-valet', on(0, valet, '--log-level', 'warning', '--policy', policies.beside, '--', ...stubCommand), clients);
  }
}

async function rounds() {
  const ask = ['-k', 'ask_once'];
  for (const clients of [1, 32, 256])
    await compete('rounds', 'round trip', [
      ['direct, native', direct, ['-k', 'native']], ['SDK, native', native, ask],
      ['mcp-valet → HTTP', () => valetOn(policies.standard, true), ask], ['mcp-valet → HTTP, gather: 1ms', () => valetOn(policies.quick, true), ask],
      ['mcp-valet → stdio, gather: 1ms', () => valetOn(policies.quick), ask]], clients, []);
}

async function sizes() {
  for (const bytes of [1000, 100000, 10000000])
    await compete('sizes', `${bytes / 1000} KB`, [['direct', direct], ['relay', relay], ['nginx', nginx],
      ['mcp-valet → stdio', () => valetOn(policies.standard)], ['mcp-valet → HTTP', () => valetOn(policies.standard, true)], ['mcp-proxy', mcpProxy]],
      1, ['-k', 'big', '-b', String(bytes)]);
}

// What calls cost that only wait: memory, processor time, and the latency of others beside them. Over HTTP each holds a
// stream and two descriptors; on stdio one call after the other asks, a few milliseconds each.
async function parked() {
  for (const http of [false, true])
    for (const count of [0, 1000, 10000, ...http && crowd > 10000 ? [crowd] : []]) {
      const contender = count > 10000 ? await crowded(policies.parking) : await valetOn(policies.parking, http);
      try {
        await runLoad(['-n', '100', 'http', String(contender.port), '/mcp']);
        const empty = status(contender.pid, 'VmRSS');
        if (count) await runLoad(['-c', http ? '200' : '32', '-n', String(count), '-p', '-k', 'ask_once', 'http', String(contender.port), '/mcp']);
        const rss_kb = status(contender.pid, 'VmRSS'), before = cpu(contender.pid);
        await sleep(5000);
        const waiting_cpu = (cpu(contender.pid) - before) / 5;
        const run = await runLoad(['-c', '1', '-t', options.seconds, 'http', String(contender.port), '/mcp']);
        note('parked', `mcp-valet → ${http ? 'HTTP' : 'stdio'}`, 1, `${count} parked`,
          { ...run, rss_kb, bytes_each: count ? Math.round((rss_kb - empty) * 1024 / count) : 0, waiting_cpu_percent: waiting_cpu * 100 });
      } catch (error) {
        console.error(`parked ${count} ${http ? 'HTTP' : 'stdio'}: ${error.message}`);
      }
      await contender.stop();
    }
}

async function start() {
  const first = [];
  for (let round = 0; round < 15; round++)
    first.push((await runLoad(['-n', '1', 'stdio', ...on(0, valet, '--policy', policies.beside, '--log-level', 'warning', '--', ...stubCommand)])).p50_us / 1000);
  const contender = await valetOn(policies.standard);
  await runLoad(['-n', '10', 'http', String(contender.port), '/mcp']);
  await sleep(300);
  note('start', 'mcp-valet', 1, 'start', { first_answer_ms: median(first), binary_bytes: statSync(valet).size, idle_rss_kb: status(contender.pid, 'VmRSS') });
  await contender.stop();
}

const scenarios = { plain, rounds, sizes, parked, start };
for (const name of options.only.split(',')) await scenarios[name]();
const out = process.env.BENCH_OUT ?? here;
const machine = { processor: cpus()[0].model, cores: cpus().length, memory_gb: Math.round(totalmem() / 2 ** 30), kernel: release(), load: before,
  node: process.version, nginx: execFileSync('sh', ['-c', 'nginx -v 2>&1']).toString().trim().replace('nginx version: ', ''),
  rounds: Number(options.rounds), seconds: Number(options.seconds) };
writeFileSync(join(out, 'results.json'), JSON.stringify({ machine, results }, null, 1) + '\n');
report(out, machine, results);
process.exit(0);
