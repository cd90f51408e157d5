// The clients of turmoil.test.mjs. Each plays one of many courses at a time: it asks, answers, sends its retry twice, comes
// late, hangs up, or never comes back, and says in the ledger what it sent and got. A place is one mcp-valet:
// { port, pid, ledger, stopping }.
import http from 'node:http';
import { meta, sleep, everything } from './valet.mjs';

const extension = 'io.modelcontextprotocol/tasks';
const declared = { ...everything, extensions: { [extension]: {} } };
export const parkMs = 2500;

export const random = count => Math.floor(Math.random() * count);
export const oneOf = list => list[random(list.length)];
const action = () => oneOf(['accept', 'accept', 'accept', 'decline', 'cancel']);

// An HTTP request whose events are told to `onMessage` as they come. Gives the status, the headers and all messages with the ids of
// their events; nothing, if it was hung up. A connection that breaks is one, `broken`.
function send(place, { method = 'POST', headers = {}, body, signal, onMessage }) {
  return new Promise(resolve => {
    const messages = [];
    const take = (text, event) => {
      const message = { ...JSON.parse(text), event, text };
      messages.push(message);
      onMessage?.(message);
    };
    const request = http.request({ host: '127.0.0.1', port: place.port, path: '/mcp', method, signal, agent: false, headers: {
      'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers } }, response => {
      const events = response.headers['content-type']?.startsWith('text/event-stream');
      let text = '';
      response.setEncoding('utf8');
      response.on('data', data => {
        text += data;
        for (let end; events && (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
          const lines = text.slice(0, end).split('\n');
          const field = name => lines.find(line => line.startsWith(`${name}: `))?.slice(name.length + 2);
          if (field('data')) take(field('data'), field('id'));
        }
      });
      response.on('end', () => {
        if (!events && text) take(text);
        resolve({ status: response.statusCode, headers: response.headers, messages });
      });
      response.on('error', () => resolve(signal?.aborted ? undefined : { broken: true, messages }));
    });
    request.on('error', error => resolve(signal?.aborted ? undefined : { broken: true, error: error.message, messages }));
    request.end(body);
  });
}

let nextId = 1;

// A modern request for `call`. Gives its one response, or nothing if the client hung up first.
async function ask(place, call, method, params, { capabilities = everything, signal, who = call.who } = {}) {
  const { ledger } = place, id = `${call.mark}-${nextId++}`;
  const name = params.name ?? params.taskId;
  const got = await send(place, { signal, body: JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta: meta(capabilities) } }), headers: {
    authorization: `Bearer ${who}`, 'mcp-protocol-version': '2026-07-28', 'mcp-method': method, ...(name ? { 'mcp-name': name } : {}) } });
  if (!got) return undefined;
  const responses = got.messages.filter(message => !message.method);
  if (responses.length !== 1 || responses[0].id !== id) ledger.fault('not one response', call, method, got);
  for (const { text } of got.messages) ledger.own(call, text);
  ledger.count(`request ${method}`);
  return responses[0] ?? { error: {} };
}

const callTool = (place, call, args = {}, more = {}, options = {}) => ask(place, call, 'tools/call', { name: call.tool, arguments: { mark: call.mark, ...args }, ...more }, options);
const textOf = result => result.content.map(part => part.text).join('\n');
const keyOf = question => / (q\d)\?/.exec(question.params.message)[1];
const same = (a, b) => JSON.stringify([a.result, a.error]) === JSON.stringify([b.result, b.error]);

// Answers to the questions of a round, or to some of them.
function answersTo(place, call, questions, all = true) {
  const entries = Object.entries(questions);
  return Object.fromEntries(entries.slice(0, all ? entries.length : 1).map(([key, question]) => [key, place.ledger.answer(call, keyOf(question), action())]));
}

// Sends a retry: once, twice at once, one after the other, or once more after hanging up.
async function retry(place, call, args, requestState, inputResponses) {
  const once = options => callTool(place, call, args, { inputResponses, requestState }, options);
  const way = oneOf(['once', 'once', 'once', 'at once', 'again', 'hang up']);
  place.ledger.count(`retry ${way}`);
  if (way === 'hang up') {
    const first = await once({ signal: AbortSignal.timeout(1 + random(30)) });
    if (!first) call.hungUp = true;
    return once();
  }
  if (way === 'once') return once();
  const first = way === 'again' ? await once() : undefined;
  const [one, two] = first ? [first, await once()] : await Promise.all([once(), once()]);
  const dropped = [one, two].some(({ error }) => error?.data?.reason === 'unverifiable') && place.ledger.droppedSince(call.sealed);
  if (!same(one, two) && !dropped) place.ledger.fault('the same retry, two outcomes', call, one, two);
  return one;
}

// From the first response to the end: everything that is asked is answered.
async function goOn(place, call, args, response) {
  const { ledger } = place;
  for (;;) {
    if (!response) return ledger.end(call, 'hung up');
    if (response.error) return ledger.refused(call, response.error, call.hungUp ? ['used', 'lost'] : []);
    const { result } = response;
    if (result.resultType === 'complete') return ledger.finished(call, textOf(result));
    if (result.resultType !== 'input_required') return ledger.fault('a strange result', call, response);
    call.sealed = Date.now();
    await sleep(random(300));
    const partly = Object.keys(result.inputRequests).length > 1 && random(2) === 0;
    response = await retry(place, call, args, result.requestState, answersTo(place, call, result.inputRequests, !partly));
  }
}

const modern = {
  async plain(place, who) {
    const call = place.ledger.begin(who, 'plain');
    await goOn(place, call, {}, await callTool(place, call));
  },

  async rounds(place, who) {
    const call = place.ledger.begin(who, oneOf(['rounds', 'rounds', 'pair', 'again'])), args = { rounds: 1 + random(3) };
    await goOn(place, call, args, await callTool(place, call, args));
  },

  // The policy may decline what this one asks.
  async sometimes(place, who) {
    const call = place.ledger.begin(who, 'sometimes');
    const response = await callTool(place, call);
    // By the policy, unless it was refused in doubt, which ends as cancel.
    if (response.result?.resultType === 'complete' && !textOf(response.result).endsWith(' cancel')) place.ledger.answer(call, 'q1', 'decline');
    await goOn(place, call, {}, response);
  },

  // Nobody comes back, or too late.
  async abandoned(place, who) {
    const { ledger } = place, call = ledger.begin(who, oneOf(['rounds', 'pair']));
    const { result, error } = await callTool(place, call);
    if (error || result.resultType === 'complete') return goOn(place, call, {}, { result, error }); // refused in doubt
    ledger.end(call, 'abandoned');
    if (random(3)) return;
    call.sealed = Date.now();
    await sleep(parkMs * 2.5);
    const late = await callTool(place, call, {}, { requestState: result.requestState, inputResponses: answersTo(place, call, result.inputRequests) });
    ledger.refused(call, late.error, ['expired', 'used']);
  },

  // Another principal brings the state; then its owner goes on.
  async stolen(place, who) {
    const { ledger } = place, call = ledger.begin(who, 'rounds');
    const first = await callTool(place, call);
    if (first.error || first.result.resultType === 'complete') return goOn(place, call, {}, first); // refused in doubt
    call.sealed = Date.now();
    const { result } = first;
    const thief = await callTool(place, call, {}, { requestState: result.requestState, inputResponses: Object.fromEntries(Object.keys(result.inputRequests)
      .map(key => [key, { action: 'accept', content: { x: `stolen:${call.mark}` } }])) }, { who: `${who}x` });
    const reason = thief.error?.data?.reason;
    if (reason !== 'mismatch' && !(reason === 'unverifiable' && ledger.droppedSince(call.sealed))) ledger.fault('a thief was not refused', call, thief);
    ledger.count('thief refused');
    await goOn(place, call, {}, first);
  },

  // Hangs up while the server works, or before it asks.
  async vanishing(place, who) {
    const call = place.ledger.begin(who, oneOf(['slow', 'rounds', 'slow_ask']));
    const response = await callTool(place, call, { ms: 400 }, {}, { signal: AbortSignal.timeout(1 + random(500)) });
    if (response?.error) return place.ledger.refused(call, response.error);
    place.ledger.end(call, response ? 'left' : 'vanished');
  },

  // A task, if it takes long enough: awaited, answered, cancelled, looked for by another, or left.
  async task(place, who) {
    const { ledger } = place, call = ledger.begin(who, oneOf(['slow', 'slow_ask'])), args = { ms: random(1500) };
    const first = await callTool(place, call, args, {}, { capabilities: declared });
    if (first.error || first.result.resultType !== 'task') return goOn(place, call, args, first);
    ledger.count('task');
    const { taskId } = first.result;
    const about = (method, more = {}, options = {}) => ask(place, call, method, { taskId, ...more }, { capabilities: declared, ...options });
    const foreign = await about('tasks/get', {}, { who: `${who}x` });
    if (foreign.error?.data?.reason !== 'unknown_task') ledger.fault('the task of another', call, foreign);
    const course = oneOf(['await', 'await', 'cancel', 'leave']);
    if (course === 'leave') return ledger.end(call, 'left');
    if (course === 'cancel') await about('tasks/cancel');
    const answered = new Set();
    for (const began = Date.now(); ;) {
      const { result, error } = await about('tasks/get');
      if (error) return ledger.fault('a task that nobody knows', call, error);
      if (result.status === 'completed') return ledger.finished(call, textOf(result.result));
      if (result.status === 'failed') return ledger.refused(call, result.error);
      if (result.status === 'cancelled') return course === 'cancel' ? ledger.end(call, 'cancelled') : ledger.fault('cancelled by nobody', call);
      const open = Object.fromEntries(Object.entries(result.inputRequests ?? {}).filter(([key]) => !answered.has(key)));
      if (Object.keys(open).length) {
        for (const key of Object.keys(open)) answered.add(key);
        await about('tasks/update', { inputResponses: answersTo(place, call, open) });
      }
      if (Date.now() - began > 20000) return ledger.fault('a task without end', call, result);
      await sleep(150);
    }
  },

  async change(place, who) {
    const call = place.ledger.begin(who, 'change');
    await goOn(place, call, {}, await callTool(place, call));
  },

  // Listens for a while, and hangs up.
  async listener(place, who) {
    const { ledger } = place, id = `listener-${nextId++}`;
    const got = { heard: 0 };
    const response = await send(place, { signal: AbortSignal.timeout(300 + random(3000)), headers: {
      authorization: `Bearer ${who}`, 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'subscriptions/listen' },
      body: JSON.stringify({ jsonrpc: '2.0', id, method: 'subscriptions/listen', params: { notifications: { toolsListChanged: true }, _meta: meta() } }),
      onMessage: message => {
        if (message.id === undefined && message.params?._meta?.['io.modelcontextprotocol/subscriptionId'] !== id) ledger.fault('a notification of another', id, message.text);
        if (message.id === undefined) ledger.count(message.method);
        got.heard++;
      } });
    ledger.count('listener');
    if (!response) return got.heard || ledger.count('listener that heard nothing');
    if (response.messages.at(-1)?.error && ledger.killedSince(Date.now() - 8000)) return ledger.count('listener refused');
    ledger.fault('a subscription that ended', id, response);
  },
};

const courses = ['plain', 'plain', 'plain', 'rounds', 'rounds', 'rounds', 'sometimes', 'abandoned', 'stolen', 'vanishing', 'task', 'task', 'change', 'listener'];

export async function modernClient(place, who, pauseMs) {
  while (!place.stopping) {
    await modern[oneOf(courses)](place, who).catch(error => place.ledger.fault('a client failed', error.stack));
    await sleep(random(2 * pauseMs));
  }
}

// A legacy session: opened, used for some calls, and ended with DELETE or by nothing.
async function legacySession(place, who) {
  const { ledger } = place, opened = Date.now(), session = `legacy-${nextId++}`;
  let headers = { authorization: `Bearer ${who}` };
  const say = message => send(place, { headers, body: JSON.stringify({ jsonrpc: '2.0', ...message }) });
  const initialize = await say({ id: 0, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: { elicitation: {} }, clientInfo: { name: 'legacy', version: '1' } } });
  if (initialize.status !== 200) return ledger.killedSince(opened) ? ledger.count('legacy session refused') : ledger.fault('no legacy session', initialize);
  headers = { ...headers, 'mcp-session-id': initialize.headers['mcp-session-id'], 'mcp-protocol-version': '2025-06-18' };
  ledger.count('legacy session');
  await say({ method: 'notifications/initialized' });
  for (let left = 1 + random(5); left && !place.stopping; left--) {
    const call = ledger.begin(who, oneOf(['plain', 'rounds', 'pair', 'slow']), session);
    call.session = session;
    if (!await legacyCall(place, call, headers, say)) break;
    await sleep(random(400));
  }
  if (random(2)) await send(place, { method: 'DELETE', headers });
}

// One call of a legacy client. false if the session is gone.
async function legacyCall(place, call, headers, say) {
  const { ledger } = place, id = `${call.mark}-l`, events = [], got = [];
  const course = oneOf(['stay', 'stay', 'stay', 'break', 'break', 'vanish', 'cancel']);
  const hang = new AbortController();
  const onMessage = message => {
    ledger.own(call, message.text);
    if (message.event) { if (events.includes(message.event)) ledger.fault('an event twice', call, message.text); events.push(message.event); }
    got.push(message);
    if (message.method !== 'elicitation/create') return;
    const answered = say({ id: message.id, result: ledger.answer(call, keyOf(message), action()) });
    if (course === 'break') answered.then(() => hang.abort());
  };
  if (course === 'vanish') setTimeout(() => hang.abort(), random(400));
  if (course === 'cancel') setTimeout(() => say({ method: 'notifications/cancelled', params: { requestId: id } }), random(300));
  if (course === 'cancel') setTimeout(() => hang.abort(), 1500);
  let response = await send(place, { headers, signal: hang.signal, onMessage,
    body: JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: call.tool, arguments: { mark: call.mark, ms: 300, rounds: 1 + random(3) } } }) });
  while (course === 'break' && !response && events.length) {
    await sleep(random(500));
    ledger.count('resumed');
    const before = events.length;
    response = await send(place, { method: 'GET', headers: { ...headers, 'last-event-id': events.at(-1) }, signal: AbortSignal.timeout(8000), onMessage });
    if (!response && events.length === before) { ledger.fault('a resumed stream that said nothing', call); break; }
  }
  if (!response && course === 'vanish') { ledger.end(call, 'vanished'); return random(2) === 0; }
  const responses = got.filter(message => message.id === id && !message.method);
  if (responses.length > 1) ledger.fault('more than one response', call, got);
  if (responses[0]?.result) { ledger.finished(call, textOf(responses[0].result)); return true; }
  if (course === 'cancel') { ledger.end(call, 'cancelled'); return true; }
  if (!ledger.killedSince(call.began - 2000)) ledger.fault('a legacy call without a result', call, response ?? 'nothing', got);
  ledger.end(call, response?.messages.at(-1)?.error ? 'legacy error' : 'session lost');
  return false;
}

export async function legacyClient(place, who, pauseMs) {
  while (!place.stopping) {
    await legacySession(place, who).catch(error => place.ledger.fault('a client failed', error.stack));
    await sleep(random(2 * pauseMs));
  }
}
