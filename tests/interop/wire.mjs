// Loaded into every server that a test starts (NODE_OPTIONS): writes down in the file WIRE what the server says and is told over
// stdin and stdout or as an HTTP server, without touching a byte. judge.mjs holds it against the official schemas.
import { appendFileSync } from 'node:fs';
import http from 'node:http';

const longest = 1 << 20; // bulk is not judged

// Takes text as it comes; without text the last line is over.
function recorder(direction) {
  let rest = '';
  return chunk => {
    const lines = (rest + (chunk ?? '\n')).split('\n');
    rest = lines.pop();
    if (rest.length > longest) rest = '';
    for (const line of lines) record(direction, line);
  };
}

function record(direction, line) {
  const text = line.replace(/^data: ?/, '').trim();
  if (text.startsWith('{') && text.length < longest) appendFileSync(process.env.WIRE, JSON.stringify({ pid: process.pid, direction, text }) + '\n');
}

// Watches what a readable stream is fed with, before anybody reads it.
function watchInput(stream, look) {
  const push = stream.push;
  stream.push = function (chunk, ...more) {
    if (chunk) look(Buffer.from(chunk).toString());
    return push.call(this, chunk, ...more);
  };
}

function watchOutput(stream, look) {
  for (const name of ['write', 'end']) {
    const method = stream[name];
    stream[name] = function (chunk, ...more) {
      if (typeof chunk === 'string' || chunk instanceof Uint8Array) look(Buffer.from(chunk).toString());
      return method.call(this, chunk, ...more);
    };
  }
}

if (process.env.WIRE) {
  watchInput(process.stdin, recorder('in'));
  watchOutput(process.stdout, recorder('out'));
  const emit = http.Server.prototype.emit;
  http.Server.prototype.emit = function (event, request, response) {
    if (event === 'request') {
      const heard = recorder('in'), said = recorder('out');
      watchInput(request, heard);
      watchOutput(response, said);
      request.on('end', () => heard());
      response.on('close', () => said());
    }
    return emit.apply(this, arguments);
  };
}
