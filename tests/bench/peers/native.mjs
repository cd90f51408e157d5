// A server on the official SDK that asks natively, by an InputRequiredResult: what a round trip costs without a proxy.
import { createServer } from 'node:http';
import { McpServer, acceptedContent, createMcpHandler, inputRequired } from '@modelcontextprotocol/server';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { z } from 'zod';

const answer = z.object({ ok: z.string() });

function makeServer() {
  const server = new McpServer({ name: 'native', version: '1' });
  const tool = (name, run) => server.registerTool(name, { inputSchema: z.object({ text: z.string() }) }, run);
  const say = text => ({ content: [{ type: 'text', text }] });
  tool('echo', ({ text }) => say(text));
  tool('ask_once', ({ text }, { mcpReq }) => {
    const given = acceptedContent(mcpReq.inputResponses, 'q', answer);
    return given ? say(`${text} ${given.ok}`)
      : inputRequired({ inputRequests: { q: inputRequired.elicit({ message: 'Well?', requestedSchema: answer }) }, requestState: 'none' });
  });
  return server;
}

createServer(toNodeHandler(createMcpHandler(makeServer))).listen(Number(process.argv[2]), '127.0.0.1');
