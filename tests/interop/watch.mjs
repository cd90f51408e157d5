// mcp-valet with an admin endpoint, for a test.
import http from 'node:http';
import { join } from 'node:path';
import { serve, scratch, until } from './valet.mjs';

function get(socketPath, path, method = 'GET') {
  return new Promise((resolve, reject) => {
    http.request({ socketPath, path, method, agent: false }, response => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', data => { text += data; });
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, text }));
    }).on('error', reject).end();
  });
}

// mcp-valet with an admin endpoint on a Unix socket, unless `args` say otherwise. `valet.metrics()` gives the samples by name and labels.
export async function watched(t, command, options = {}) {
  const socket = join(scratch(t), 'admin');
  const valet = await serve(t, command, { ...options, args: options.args?.includes('--admin') ? options.args : ['--admin', `unix:${socket}`, ...options.args ?? []] });
  const [, address] = await until(() => /health and metrics on ([^"]+)"/.exec(valet.log), `the address in the log:\n${valet.log}`);
  valet.adminPath = socket;
  valet.adminPort = Number(address.split(':')[1]);
  valet.admin = (path, method) => get(socket, path, method);
  valet.metrics = async () => {
    const { text } = await valet.admin('/metrics');
    return Object.fromEntries(text.split('\n').filter(line => line && !line.startsWith('#'))
      .map(line => [line.slice('mcp_valet_'.length, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]));
  };
  return valet;
}
