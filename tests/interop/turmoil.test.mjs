// Turmoil: modern and legacy clients of several principals on two mcp-valets at once, one in front of a command, one in front of an
// HTTP server. Servers are killed and started again, clients hang up, policy and keys are changed. Every call has a mark, every
// answer is unlike all others, and clients and servers write down what they see: nothing may be lost, crossed, doubled or left.
// SOAK_SECONDS says for how long (by hand: 1800), SOAK_LOG names a folder that gets the logs.
import test from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { children, descriptors, fixture, freePort, program, scratch, sleep, until } from './valet.mjs';
import { watched } from './watch.mjs';
import { Ledger } from './turmoil_ledger.mjs';
import { legacyClient, modernClient, oneOf, parkMs, random } from './turmoil_clients.mjs';

const seconds = Number(process.env.SOAK_SECONDS ?? 8), warmUp = Math.min(30, seconds / 4);
const pauseMs = 350;
// What valet.mjs wants to be written down of every message would fill the disk in half an hour.
delete process.env.NODE_OPTIONS;

const residentKiB = pid => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);
const cpuSeconds = pid => readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ').slice(11, 13).reduce((sum, ticks) => sum + Number(ticks) / 100, 0);

const policies = [['forward', 300], ['decline', 600]].map(([sometimes, taskAfter]) => `version: 1
limits: { pool: 3, sessions: 60, connections_per_address: 500 }
deadlines: { idle_session: 2s, wait: 8s, redeliver: 10s }
defaults: { park: ${parkMs}ms }
rules:
  - match: { tool: [ plain, change ] }
    asks: never
  - match: { tool: "slow*" }
    task_after: ${taskAfter}ms
  - match: { tool: again }
    rerun: if-lost
  - match: { tool: sometimes }
    elicitation: ${sometimes}
`);


// mcp-valet with what clients, kills and reloads need to know of it.
async function startPlace(t, name, command, env, args = []) {
  const dir = scratch(t), policy = join(dir, 'policy'), keyFile = join(dir, 'keys'), ledger = new Ledger();
  const write = (file, text) => { writeFileSync(`${file}.new`, text, { mode: 0o600 }); renameSync(`${file}.new`, file); };
  const keygen = () => execFileSync(program, ['keygen'], { encoding: 'utf8' });
  let keys = [keygen()], turn = 0;
  write(policy, policies[0]);
  write(keyFile, keys.join(''));
  const place = await watched(t, command, { env: { ...env, ASAN_OPTIONS: 'quarantine_size_mb=1' }, args: ['--policy', policy, '--key-file', keyFile, ...args] });
  const seen = event => place.log.split(event).length - 1;

  // Another policy, which every fourth time is a bad one; and another key, with or without the old one.
  place.reload = async () => {
    const bad = ++turn % 4 === 0, event = bad ? 'reload-refused' : '"reloaded"', before = seen(event);
    write(policy, bad ? 'version: 1\nlimits: { nonsense: 1 }\n' : policies[turn % 2]);
    const drop = !bad && (keys.length > 1 || random(2) === 0);
    if (!bad) keys = keys.length > 1 ? [keys[0]] : drop ? [keygen()] : [keygen(), keys[0]];
    write(keyFile, keys.join(''));
    if (drop) ledger.dropped.push(Date.now());
    place.child.kill('SIGHUP');
    await until(() => seen(event) > before, `${event} in the log`);
    if (drop) ledger.dropped.push(Date.now());
    ledger.count(bad ? 'reload refused' : drop ? 'reload, a key dropped' : 'reload');
  };
  return Object.assign(place, { name, ledger, record: env.RECORD });
}

const recordFile = t => { const file = join(scratch(t), 'record'); writeFileSync(file, ''); return file; };

async function startStdio(t) {
  const place = await startPlace(t, 'stdio', ['node', fixture('marked.mjs')], { RECORD: recordFile(t) });
  place.disturb = async () => {
    const pids = children(place.pid);
    if (!pids.length) return;
    place.ledger.kills.push(Date.now());
    process.kill(oneOf(pids), 'SIGKILL');
    place.ledger.count('server killed');
  };
  return place;
}

async function startHttp(t) {
  const port = await freePort(), env = { RECORD: recordFile(t), PORT: String(port) };
  let server;
  const start = async () => {
    server = spawn('node', [fixture('marked.mjs')], { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, ...env } });
    await new Promise(resolve => server.stdout.once('data', resolve));
  };
  await start();
  t.after(() => server.kill('SIGKILL'));
  const place = await startPlace(t, 'http', [], env, ['--upstream', `http://127.0.0.1:${port}/mcp`]);
  place.disturb = async () => {
    place.ledger.down = true;
    server.kill('SIGKILL');
    await sleep(random(800));
    await start();
    place.ledger.kills.push(Date.now());
    place.ledger.down = false;
    place.ledger.count('server killed');
  };
  return place;
}

async function run(places, forSeconds, tell) {
  const end = Date.now() + forSeconds * 1000, left = () => end - Date.now();
  const every = async (ms, what) => { while (left() > 0) { await sleep(Math.min(ms / 2 + random(ms), Math.max(left(), 0))); if (left() > 0) await what(); } };
  for (const place of places) place.stopping = false;
  const clients = places.flatMap(place => [
    ...['ann', 'bob', 'cyd'].flatMap(who => [1, 2].map(() => modernClient(place, who, pauseMs))),
    ...['leo', 'lea'].map(who => legacyClient(place, who, 4 * pauseMs)),
  ]);
  const disturbances = places.flatMap(place => [every(place.name === 'http' ? 9000 : 5000, place.disturb), every(3000, place.reload)]);
  if (tell) disturbances.push(every(60000, async () => tell()));
  await Promise.all(disturbances);
  for (const place of places) place.stopping = true;
  await Promise.all(clients);
}

// Nothing is left of what was: no session, no call, no child, no descriptor.
async function idle(place) {
  const open = ['parked_calls', 'tasks', 'open_requests', 'open_server_requests', 'sessions'];
  let metrics;
  const isIdle = async () => { metrics = await place.metrics(); return open.every(name => metrics[name] === 0); };
  await until(isIdle, `${place.name} to be idle`, 40000).catch(error => place.ledger.fault(error.message, Object.fromEntries(open.map(name => [name, metrics[name]]))));
  await until(() => !children(place.pid).length, 'the children to end').catch(() => place.ledger.fault('children are left', children(place.pid)));
  await sleep(500);
  const refused = metrics['attribution_doubts_total{outcome="refused"}'], doubted = place.ledger.counts['question refused in doubt'] ?? 0;
  if (doubted > refused) place.ledger.fault('more questions refused than doubted', { doubted, refused });
  return { descriptors: descriptors(place.pid), residentKiB: residentKiB(place.pid), cpuSeconds: cpuSeconds(place.pid) };
}

const records = file => readFileSync(file, 'utf8').split('\n').filter(Boolean).map(line => JSON.parse(line));

test(`turmoil for ${seconds} s`, { timeout: (seconds + warmUp + 120) * 1000 }, async t => {
  const places = [await startStdio(t), await startHttp(t)];
  t.after(() => { // also if it fails half-way
    if (process.env.SOAK_LOG) for (const { name, log, ledger } of places) {
      writeFileSync(join(process.env.SOAK_LOG, `${name}.log`), log);
      writeFileSync(join(process.env.SOAK_LOG, `${name}.ledger.json`), JSON.stringify([ledger.faults, ledger.counts, ...ledger.calls.values()], null, 1));
    }
  });
  const tell = () => { for (const { name, pid, ledger } of places)
    console.log(`# ${new Date().toISOString()} ${name}: ${ledger.calls.size} calls, ${ledger.faults.length} faults, ${residentKiB(pid)} KiB, ${descriptors(pid)} descriptors, ${cpuSeconds(pid)} s\n${ledger.faults.slice(-3).join('\n')}`); };
  await run(places, warmUp); // what is allocated once is allocated now
  const before = await Promise.all(places.map(idle));
  await run(places, seconds, tell);
  const after = await Promise.all(places.map(idle));
  for (const [i, place] of places.entries()) {
    const { name, ledger } = place;
    place.child.kill('SIGTERM');
    assert.deepEqual(await place.exited, { code: 0, signal: null }, place.log.slice(-3000));
    assert.doesNotMatch(place.log, /AddressSanitizer|LeakSanitizer|runtime error/);
    ledger.compare(records(place.record));
    t.diagnostic(`${name}: ${JSON.stringify(before[i])} → ${JSON.stringify(after[i])}`);
    t.diagnostic(`${name}: ${JSON.stringify(Object.fromEntries(Object.entries(ledger.counts).sort()))}`);
  }
  assert.deepEqual(places.flatMap(({ ledger }) => ledger.faults.slice(0, 20)), []);
  for (const [i, { name }] of places.entries()) {
    assert.ok(after[i].descriptors <= before[i].descriptors + 16, `only idle connections may be open; ${name}: descriptors ${before[i].descriptors} → ${after[i].descriptors}`);
    assert.ok(after[i].residentKiB < before[i].residentKiB + 30 * 1024, `${name}: resident ${before[i].residentKiB} → ${after[i].residentKiB} KiB`);
  }
});
