// What the clients of turmoil.test.mjs sent and got, each call by its mark, and at the end the comparison with what the servers
// wrote down. `faults` is what must not be.
const markOf = /m\.[a-z]+\.\d+/g; // no request state has dots

export class Ledger {
  faults = [];
  calls = new Map();
  counts = {};
  kills = [];   // when a server was killed
  down = false; // it is not there at all
  dropped = []; // when a key was taken out of the key file
  #next = 1;

  count(what) { this.counts[what] = (this.counts[what] ?? 0) + 1; }

  fault(what, ...about) { this.faults.push(`${new Date().toISOString()} ${what}: ${about.map(one => typeof one === 'string' ? one : JSON.stringify(one)).join(' ')}`); }

  // A call of `who`. `answers` are those that were sent: by key of the server's question, with their action.
  begin(who, tool, session) {
    const call = { mark: `m.${who}.${this.#next++}`, who, tool, session, began: Date.now(), answers: [], end: undefined };
    this.calls.set(call.mark, call);
    this.count(`call ${tool}`);
    return call;
  }

  // An answer that is about to be sent. Every one is unlike all others, so where it arrives shows whether it was crossed.
  answer(call, key, action) {
    const x = `${call.mark}:${key}:${this.#next++}`;
    call.answers.push({ key, action, x });
    this.count(`answer ${action}`);
    return action === 'accept' ? { action, content: { x } } : { action };
  }

  end(call, how) { call.end = how; this.count(`end ${how}`); }

  // Nothing that came to a call may name another.
  own(call, text) {
    for (const [mark] of text.matchAll(markOf)) if (mark !== call.mark) { this.fault('crossed', call, text); return; }
  }

  killedSince(time) { return this.down || this.kills.some(kill => kill >= time - 200); }
  droppedSince(time) { return this.dropped.some(drop => drop >= time - 200); }

  // The error that ends a call must be one that the documents promise, and have its cause.
  refused(call, error, allowed = []) {
    const reason = error?.data?.reason ?? `code ${error?.code}`;
    // A session that the server forgot when it was killed is found out by whoever uses it next, however late.
    if (['lost', 'unavailable'].includes(reason) && error.message.includes('does not know the session') && this.kills.length) call.unknown = !call.answers.length;
    const may = reason === 'busy' || call.unknown !== undefined || allowed.includes(reason)
      || ['lost', 'unavailable'].includes(reason) && this.killedSince(call.began)
      || reason === 'unverifiable' && this.droppedSince(call.sealed ?? call.began);
    if (!may) this.fault('refused without a cause', call, error ?? 'no error');
    this.end(call, reason);
  }

  // The text of a result: all answers that the server got for it, in its order.
  finished(call, text) {
    const [mark, ...got] = text.split(' ').filter(Boolean);
    const sent = call.answers.map(({ action, x }) => action === 'accept' ? x : action);
    // A question that several calls may have asked is refused, never guessed; mcp-valet counts them.
    while (got.length > sent.length && got.includes('cancel')) { got.splice(got.lastIndexOf('cancel'), 1); call.doubted = true; this.count('question refused in doubt'); }
    if (mark !== call.mark || [...got].sort().join() !== [...sent].sort().join()) this.fault('another result', call, text);
    this.end(call, 'result');
  }

  // What the servers wrote down against what the clients know.
  compare(records) {
    const runs = new Map(), of = new Map(), owners = new Map();
    for (const record of records) {
      const call = this.calls.get(record.mark);
      if (!call) { this.fault('a call that nobody made', record); continue; }
      if (record.authorization && record.authorization !== `Bearer ${call.who}`) this.fault('credentials of another', call, record);
      if (record.tool !== call.tool) this.fault('another tool', call, record);
      const owner = call.session ?? call.who;
      if (owners.has(record.session) && owners.get(record.session) !== owner) this.fault('a session of two', owners.get(record.session), call, record);
      owners.set(record.session, owner);
      if (record.event === 'call') {
        runs.set(record.run, { answers: new Map(), call });
        of.set(record.mark, [...of.get(record.mark) ?? [], record.run]);
      } else if (record.event === 'answer') this.#compareAnswer(call, record, runs.get(record.run));
      else if (record.event === 'end') { runs.get(record.run).ended = true; this.count('server end'); }
      else if (record.event === 'cancelled') { runs.get(record.run).cancelled = true; this.count('server cancelled'); }
    }
    for (const call of this.calls.values()) {
      const its = (of.get(call.mark) ?? []).map(run => runs.get(run));
      if (its.length > 1 && call.tool !== 'again') this.fault('it ran twice', call, its.length);
      if (its.length > 1) this.count('ran again');
      if (call.end === undefined) this.fault('no response', call);
      if (['busy', 'unavailable'].includes(call.end) && !call.answers.length && its.length && call.tool !== 'again') this.fault('it was sent after all', call);
      if (call.unknown && its.length && call.tool !== 'again') this.fault('it ran in a session that was unknown', call);
      if (call.end !== 'result') continue;
      if (!its.some(run => run.ended)) this.fault('a result that the server never gave', call);
      for (const { key, x, action } of call.answers)
        if (!its.some(run => { const got = run.answers.get(key); return got && got.action === action && (action !== 'accept' || got.x === x); }))
          this.fault('an answer that was lost', call, key);
    }
    return this.faults;
  }

  #compareAnswer(call, record, run) {
    this.count(`server answer ${record.action}`);
    if (run.answers.has(record.key)) this.fault('answered twice', call, record);
    run.answers.set(record.key, record);
    if (record.action === 'error') { // a session that ended, or a call that was cancelled, asks in vain
      if (!this.killedSince(call.began) && call.end === 'result') this.fault('an answer that is an error', call, record);
      return;
    }
    const sent = call.answers.filter(({ key, action, x }) => key === record.key && action === record.action && (action !== 'accept' || x === record.x));
    const failedClosed = record.action === 'cancel' && (call.end !== 'result' || call.doubted);
    if (!sent.length && !failedClosed) this.fault('an answer that nobody gave', call, record);
  }
}
