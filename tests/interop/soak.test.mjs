// Ten thousand calls and a thousand that nobody comes back for leave nothing behind. SOAK_CALLS and SOAK_ABANDONED choose
// other numbers.
import test from 'node:test';
import assert from 'node:assert/strict';
import http from 'node:http';
import { readFileSync } from 'node:fs';
import { call, children, descriptors, fixture, meta, serve, sleep, textOf, until } from './valet.mjs';

const calls = Number(process.env.SOAK_CALLS ?? 10000), abandoned = Number(process.env.SOAK_ABANDONED ?? 1000);


const residentKiB = pid => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);

async function many(count, atOnce, one) {
  let next = 0;
  await Promise.all([...Array(atOnce)].map(async () => { while (next < count) await one(next++); }));
}

test(`${calls} calls and ${abandoned} abandoned ones`, { timeout: 600000 }, async t => {
  const valet = await serve(t, ['node', fixture('asker.mjs')], { policy:
    'version: 1\nlimits: { parked_per_principal: 5000 }\ndefaults: { park: 500ms }\ndeadlines: { idle_session: 1s, redeliver: 500ms }\n' });
  const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });
  t.after(() => agent.destroy());
  const plain = n => new Promise((resolve, reject) => {
    const body = JSON.stringify({ jsonrpc: '2.0', id: n, method: 'tools/call', params: { name: 'plain', arguments: { n }, _meta: meta({}) } });
    const request = http.request({ host: '127.0.0.1', port: valet.port, path: '/mcp', method: 'POST', agent, headers: {
      'content-type': 'application/json', 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'plain' } }, response => {
      let text = '';
      response.on('data', data => { text += data; });
      response.on('end', () => resolve(JSON.parse(text)));
    });
    request.on('error', reject);
    request.end(body);
  });
  const round = async (plains, parkings) => {
    await many(plains, 16, async n => assert.equal(textOf((await plain(n)).result), `plain {"n":${n}}`));
    await many(parkings, 8, async n => {
      const { result } = await call(valet, 'confirm', { what: String(n) });
      assert.equal(result?.resultType, 'input_required', valet.log.slice(-6000));
    });
    await until(() => children(valet.pid).length === 0, 'the sessions to end', 20000);
    await sleep(200);
  };
  await round(200, 20); // what is allocated once is allocated now
  const before = { descriptors: descriptors(valet.pid), resident: residentKiB(valet.pid) };
  await round(calls, abandoned);
  const after = { descriptors: descriptors(valet.pid), resident: residentKiB(valet.pid) };
  t.diagnostic(`descriptors ${before.descriptors} → ${after.descriptors}, resident ${before.resident} → ${after.resident} KiB`);
  assert.ok(after.descriptors <= before.descriptors + 16, 'only idle connections may be open');
  // The sanitizer keeps freed memory in quarantine; without it the growth is a few hundred KiB.
  assert.ok(after.resident < before.resident + 300 * 1024, `resident ${before.resident} → ${after.resident} KiB`);
  valet.child.kill('SIGTERM');
  assert.deepEqual(await valet.exited, { code: 0, signal: null });
});
