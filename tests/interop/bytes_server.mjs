// A legacy server that speaks HTTP in bare bytes, to say what no HTTP library would.
import { createServer } from 'node:net';

export const json = body => `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
export const chunk = text => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
export const streamHead = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n';
export const none = status => `HTTP/1.1 ${status} No\r\nContent-Length: 0\r\n\r\n`;

export const at = seen => `http://127.0.0.1:${seen.port}/mcp`;

// `onCall(socket, message, answer, seen)` has the tools/call requests. What is set of `seen` has more: `onConnection(socket)`,
// `onInitialize(socket, answer)`, `onList(socket, answer)`, `onGet(socket, head)`, and `onHead(socket, head)`, as soon as there is
// one, which says whether it has dealt with it.
export async function server(t, onCall, listen = { port: 0, host: '127.0.0.1' }) {
  const seen = { connections: 0, calls: 0, lists: 0, sockets: new Set() };
  const found = createServer(socket => {
    let bytes = '';
    seen.connections++;
    seen.sockets.add(socket);
    seen.onConnection?.(socket);
    socket.setEncoding('latin1').on('error', () => {}).on('close', () => seen.sockets.delete(socket));
    socket.on('data', data => {
      bytes += data;
      for (;;) {
        const end = bytes.indexOf('\r\n\r\n'), length = Number(/content-length: (\d+)/i.exec(bytes.slice(0, end))?.[1] ?? 0);
        if (end >= 0 && seen.onHead?.(socket, bytes.slice(0, end))) return;
        if (end < 0 || bytes.length < end + 4 + length) return;
        const head = bytes.slice(0, end), method = head.split(' ')[0], body = bytes.slice(end + 4, end + 4 + length);
        bytes = bytes.slice(end + 4 + length);
        if (method !== 'POST') {
          if (method === 'GET' && seen.onGet) seen.onGet(socket, head);
          else socket.write(none(405));
          continue;
        }
        const message = JSON.parse(body);
        if (message.method === 'tools/call') seen.calls++;
        if (message.method === 'tools/list') seen.lists++;
        const answer = JSON.stringify({ jsonrpc: '2.0', id: message.id, result: message.method === 'initialize'
          ? { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'bytes', version: '1' } }
          : message.method === 'tools/list' ? { tools: [] } : { content: [{ type: 'text', text: `answer ${seen.calls}` }] } });
        if (message.id === undefined) socket.write(none(202));
        else if (message.method === 'tools/call') onCall(socket, message, answer, seen);
        else if (message.method === 'initialize' && seen.onInitialize) seen.onInitialize(socket, answer);
        else if (message.method === 'tools/list' && seen.onList) seen.onList(socket, answer);
        else socket.write(json(answer));
      }
    });
  });
  await new Promise((resolve, reject) => found.on('error', reject).listen(listen, resolve));
  t.after(() => { for (const socket of seen.sockets) socket.destroy(); found.close(); });
  return Object.assign(seen, { port: found.address().port });
}
